"""What the golden files share: the number generator, the file format, the comparison.

Numbers come from Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011), keyed by a seed and a tensor's name, so that a C++ test can make the same inputs
without reading them. Files are safetensors: 8 bytes of little-endian header length, a JSON header
padded with spaces to a multiple of 8, then the data in the header's order.
"""

import argparse
import json
import os
import struct

import numpy as np

MASK32 = np.uint64(0xFFFFFFFF)
MASK64 = 0xFFFFFFFFFFFFFFFF

# Mathematically zero gradients come out of float64 as rounding noise far below this; what is real
# in these small problems lies far above. Storing zero keeps the files free of noise.
NOISE = 1e-14


def fnv1a64(name):
    value = 0xCBF29CE484222325
    for byte in name.encode("utf-8"):
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


def mix64(z):
    """One step of SplitMix64: a bijection of 64 bits in which every input bit counts."""
    z = (z + 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def philox4x32_10(counter, key):
    """counter: four and key: two values or arrays of 32-bit words. Returns the output words."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        product0 = np.uint64(0xD2511F53) * c0
        product1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (product1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            product1 & MASK32,
            (product0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            product0 & MASK32,
        )
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def verify_philox():
    """The known answers published with the authors' Random123 library."""
    ones = 0xFFFFFFFF
    answers = [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ]
    for counter, key, expected in answers:
        assert tuple(int(word) for word in philox4x32_10(counter, key)) == expected


def words(seed, name, count):
    """The first `count` 32-bit words of a name's stream, as uint64."""
    key = mix64(seed ^ fnv1a64(name))
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    zero = np.zeros_like(block)
    counter = (block & MASK32, block >> np.uint64(32), zero, zero)
    outputs = philox4x32_10(counter, (key & 0xFFFFFFFF, key >> 32))
    return np.stack(outputs, axis=1).reshape(-1)[:count]


def uniform(seed, name, count):
    """24-bit uniform numbers in [0, 1), exact in fp32."""
    return ((words(seed, name, count) >> np.uint64(8)).astype(np.float64) * 2.0**-24).astype(
        np.float32
    )


def values(seed, name, shape, scale, offset=0.0):
    """fp32 numbers in [offset - scale, offset + scale); product and sum are rounded one by one."""
    u = uniform(seed, name, int(np.prod(shape)))
    centred = np.float32(2) * u - np.float32(1)
    return (centred * np.float32(scale) + np.float32(offset)).reshape(shape)


def without_noise(array):
    array = np.asarray(array)
    return np.where(np.abs(array) < NOISE, 0.0, array)


def write_file(path, tensors):
    """tensors: name -> array. Everything is stored as fp32."""
    header, data = {}, []
    position = 0
    for name, array in tensors.items():
        array = np.asarray(array, dtype="<f4")
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
        data.append(array.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def read_file(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    data = content[8 + length :]
    tensors = {}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
    return tensors


def differences(expected, actual, relative=1e-6, absolute=1e-7):
    """Sentences that say where two sets of tensors differ; none when they agree.

    The tolerance allows for another PyTorch summing in another order before the rounding to fp32.
    """
    found = [f"{name} is missing" for name in expected if name not in actual]
    found += [f"{name} is unexpected" for name in actual if name not in expected]
    for name in expected:
        if name not in actual:
            continue
        a, b = (np.asarray(x[name], dtype=np.float32) for x in (expected, actual))
        if a.shape != b.shape:
            found.append(f"{name} has shape {b.shape} instead of {a.shape}")
        elif not np.allclose(b, a, rtol=relative, atol=absolute):
            worst = np.max(np.abs(a.astype(np.float64) - b))
            found.append(f"{name} differs by up to {worst:.3g}")
    return found


def run(description, default_path, generate):
    """Command line of a generator: writes its file, or compares a file with what it computes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", default=default_path, help="file to write")
    parser.add_argument("--check", metavar="FILE", help="compare this file, write nothing")
    options = parser.parse_args()
    verify_philox()
    tensors = generate()
    if not options.check:
        write_file(options.output, tensors)
        print(f"{options.output}: {len(tensors)} tensors, {os.path.getsize(options.output)} bytes")
        return 0
    found = differences(tensors, read_file(options.check))
    for sentence in found:
        print(f"{options.check}: {sentence}")
    if not found:
        print(f"{options.check}: {len(tensors)} tensors agree")
    return 1 if found else 0
