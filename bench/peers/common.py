"""What the peer benchmarks share: describing the installed PyTorch, autocast, timing."""

import contextlib
import ctypes
import os
import re
import resource
import statistics
import time
from os.path import basename

import torch


def default_threads():
    """The number of cores this process may run on."""
    return len(os.sched_getaffinity(0))


def loaded_blas():
    """Paths of the BLAS libraries this process has loaded; a link counts as what it points to."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if ".so" in line}
    return sorted(x for x in paths if re.match(r"lib(openblas|blis|atlas|mkl_rt)", basename(x)))


def blas_name():
    """The BLAS named by the build, with the library in use where the build leaves it open.

    A distribution builds against the generic interface and chooses the library when the program
    starts, so the build's word alone would not say whether it is OpenBLAS or the reference.
    """
    match = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    name = match.group(1) if match else "unknown"
    if name == "generic":
        name += f" ({', '.join(basename(x) for x in loaded_blas()) or 'reference'})"
    return name


def set_threads(count):
    """Limits every thread pool. PyTorch knows its own, MKL's and oneDNN's, but not OpenBLAS's."""
    torch.set_num_threads(count)
    for path in loaded_blas():
        limit = getattr(ctypes.CDLL(path), "openblas_set_num_threads", None)
        if limit:
            limit(count)


def environment(dtype):
    """The fields that every line of output carries.

    omp_wait_policy matters where OpenBLAS brings its own threads (Debian's PyTorch): OpenMP's idle
    threads then spin on the cores OpenBLAS needs, unless OMP_WAIT_POLICY=passive. Builds with one
    pool are faster without it. So time both and let the better one be the peer.
    """
    return {
        "torch": torch.__version__,
        "blas": blas_name(),
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "dtype": dtype,
    }


def autocast(dtype):
    """fp32: nothing. bf16: autocast, with the weights staying fp32."""
    if dtype == "bf16":
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def median_seconds(function, seconds, warmup=2, shortest_sample=2e-3):
    """Median time of one call, sampled for about `seconds`.

    Calls are timed in groups that last at least `shortest_sample`, so that the clock and the loop
    do not count. At least three samples are taken.
    """
    for _ in range(warmup):
        function()
    start = time.perf_counter()
    function()
    once = max(time.perf_counter() - start, 1e-9)
    calls = max(1, int(shortest_sample / once + 0.5))

    samples = []
    deadline = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < deadline:
        start = time.perf_counter()
        for _ in range(calls):
            function()
        samples.append((time.perf_counter() - start) / calls)
    return statistics.median(samples)
