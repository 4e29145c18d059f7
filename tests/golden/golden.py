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


def differing_place(expected, actual, relative=0.0, absolute=0.0, place=""):
    """Where two values of JSON differ first, as in ".steps[2].loss"; None: nowhere.

    Numbers may lie apart by a share of the expected one, or by `absolute` where that is more.
    """
    if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        pairs = [(f"{place}.{key}", expected[key], actual[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = [(f"{place}[{i}]", *pair) for i, pair in enumerate(zip(expected, actual))]
    elif {type(expected), type(actual)} <= {int, float}:
        agrees = expected == actual or abs(expected - actual) <= max(absolute, relative * abs(expected))
        return None if agrees else place or "the top"
    else:
        return None if expected == actual else place or "the top"
    places = (differing_place(one, other, relative, absolute, name) for name, one, other in pairs)
    return next((found for found in places if found), None)


def json_differences(relative=0.0, absolute=0.0):
    """What run_json() compares by: one sentence, or none."""

    def compare(expected, actual):
        place = differing_place(expected, actual, relative, absolute)
        return [f"the value at {place} differs"] if place else []

    return compare


class CannotCheck(Exception):
    """Why this machine cannot compute a file again. What is not installed is a ModuleNotFoundError."""


def parser(description, name):
    """Options that generators have in common; `name`: of the file, which lies beside them."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    options.add_argument("--output", default=default, help="file to write")
    options.add_argument("--check", metavar="FILE", help="compare this file, write nothing")
    return options


def run(description, name, generate, again=None, compare=differences, read=read_file, write=write_file):
    """Command line of a generator: writes its file, or compares a file with what it computes.

    `again`: what a file should hold, from what it holds, where that is another function than generate();
    `compare`: sentences that say where a file, its second argument, is wrong.
    """
    options = parser(description.split("\n")[0], name).parse_args()
    verify_philox()
    if not options.check:
        write(options.output, generate())
        print(f"{options.output}: {os.path.getsize(options.output)} bytes")
        return 0
    stored = read(options.check)
    try:
        found = again(stored) if again else generate()
    except ModuleNotFoundError as error:
        print(f"{options.check}: skipped, {error.name} is not installed")
        return 0
    except CannotCheck as reason:
        print(f"{options.check}: skipped, {reason}")
        return 0
    sentences = compare(found, stored)
    for sentence in sentences:
        print(f"{options.check}: {sentence}")
    if not sentences:
        print(f"{options.check}: as generated")
    return 1 if sentences else 0


def run_json(description, name, generate, again=None, compare=json_differences(), line_before=None, **form):
    """The same for a file of JSON, whose form json.dumps() has; `line_before`: what begins a line of its own."""

    def read(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def write(path, found):
        text = json.dumps(found, **form)
        if line_before:
            text = text.replace(line_before, "\n" + line_before)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")

    return run(description, name, generate, again, compare, read, write)
