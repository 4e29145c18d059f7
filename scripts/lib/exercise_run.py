"""Runs an exercise's program in a process of its own, with limits, and puts what it found into words."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

from exercise_build import Refused

SECONDS = 20  # of a program, without another wish
BYTES = 4 << 30
FILE_BYTES = 64 << 20
SAID_BYTES = 4000
CRASHES = {
    signal.SIGSEGV: "used memory that is not its own, as behind an array's end",
    signal.SIGBUS: "used memory that is not its own",
    signal.SIGFPE: "divided a whole number by 0",
    signal.SIGABRT: "was ended by a check of the C++ library or of its memory",
    signal.SIGILL: "reached code that must not be reached, as the end of a function that returns nothing",
    signal.SIGXFSZ: f"wrote a file of more than {FILE_BYTES >> 20} MiB",
    signal.SIGKILL: "was killed",
}


@dataclass
class Result:
    laws: list = field(default_factory=list)
    held: int = 0
    wrong: str = ""  # of the law after those that hold
    refused: str = ""  # what compiler or linker say
    warned: str = ""
    output: str = ""  # of the program itself

    @property
    def passed(self):
        return bool(self.laws) and self.held == len(self.laws) and not self.wrong and not self.refused

    def as_json(self):
        failed = self.laws[self.held] if self.wrong and self.held < len(self.laws) else None
        return {"passed": self.passed, "held": self.held, "laws": len(self.laws), "failed": failed,
                "why": self.refused or self.wrong}


def limit(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 2))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def check(build, exercise, source, program, seconds=SECONDS):
    """Builds `source` as `program`, runs it for that time at most, and returns a Result."""
    result = Result()
    try:
        result.warned = build.make(exercise, source, program)
    except Refused as refusal:
        result.refused = str(refusal)
        return result
    run(program, result, seconds)
    return result


def read_until(fd, deadline, kept):
    """Reads until the other end is closed or it is too late; says whether it was closed."""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            return False
        piece = os.read(fd, 65536)
        if not piece:
            return True
        kept += piece
        if len(kept) > 1 << 20:
            return True
    return False


def run(program, result, seconds):
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="keel-learn-") as folder, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(program)], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[writing],
            env={"PATH": os.environ.get("PATH", ""), "LEARN_REPORT": str(writing), "TMPDIR": folder, "LANG": "C.UTF-8"},
            start_new_session=True, preexec_fn=lambda: limit(seconds),
        )
        os.close(writing)
        report = bytearray()
        ended = read_until(reading, time.monotonic() + seconds, report)
        os.close(reading)
        if ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        late = process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        result.output = output.read(SAID_BYTES).decode(errors="replace").strip()
    understand(report.decode(errors="replace"), result)
    if result.wrong:
        return
    if late or process.returncode == -signal.SIGXCPU:
        result.wrong = f"It did not end within {seconds} s: a loop that never ends, or a wait for what never comes."
    elif process.returncode < 0:
        number = signal.Signals(-process.returncode)
        result.wrong = f"The program {CRASHES.get(number, 'ended')} ({number.name})."
    elif not report.endswith(b"end\t\n") or process.returncode:
        result.wrong = "The program ended before the laws were tried: what calls exit()?"
    if result.wrong and result.output:
        result.wrong += "\nIt said:\n  " + result.output.replace("\n", "\n  ")


def understand(report, result):
    for line in report.splitlines():
        word, _, text = line.partition("\t")
        text = text.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
        if word == "law":
            result.laws.append(text)
        elif word == "holds":
            result.held += 1
        elif word == "wrong":
            result.wrong = text
