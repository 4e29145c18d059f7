"""Runs the sides of a case, and reads what they have written: checkpoints, records and weights."""

import hashlib
import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

LONGEST = 120  # seconds of a command; one that takes longer hangs
BYTES = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4, "bf16": 2, "f16": 2, "u8": 1, "i8": 1}
# Numbers of records that tell of time, memory and messages, and what a run has tried.
MEASURED = re.compile(r"_per_s$|step_ms|elapsed_s|resident_bytes|exposed_ms|sent_bytes|peak_|device_bytes|tuned/|flops_util")
EXPORTED = {"KEEL_EMULATED_DEVICES": "8"}  # a device for each rank, where device=emulated
ENDS_WELL, BAD_INPUT, NOT_FINITE = 0, 2, 3


@dataclass
class Outcome:
    """What a side came to. `code`: its exit code, or "hang". `wrote`: whether the run's folder is there. `resumed`: whether
    the session that ended it went on from another one."""
    code: object
    output: str
    run: Path
    wrote: bool = False
    resumed: bool = False
    model: str = ""
    step: int = 0
    tensors: dict = field(default_factory=dict)
    state: dict = field(default_factory=dict)
    records: dict = field(default_factory=dict)
    left: list = field(default_factory=list)

    def message(self):
        """The lines that say why it ended."""
        lines = self.output.splitlines()
        told = [line for line in lines if "rror" in line or "keel:" in line]
        return " / ".join(told or lines[-2:])[:400]


class Runner:
    """Runs lines of bash in one folder, with what they leave in memory beside it."""

    def __init__(self, keel, folder):
        self.keel, self.folder = keel, folder
        self.memory = folder / "memory"
        self.memory.mkdir(exist_ok=True)
        (folder / "tmp").mkdir(exist_ok=True)
        self.environment = {**os.environ, **EXPORTED, "TMPDIR": str(folder / "tmp"), "KEEL_MEMORY_FOLDER": str(self.memory)}

    def call(self, line):
        """(exit code or "hang", output) of a line of bash."""
        process = subprocess.Popen(["bash", "-c", line], cwd=self.folder, env=self.environment, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=LONGEST)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return "hang", ""
        finally:
            if process.poll() is None:
                self.end_all()
                process.communicate()

    def end_all(self):
        """Ends all that was started here: ranks lead groups of their own, and have this folder in their environment."""
        mark = f"KEEL_MEMORY_FOLDER={self.memory}\0".encode()
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if int(place.name) != os.getpid() and mark in (place / "environ").read_bytes():
                    os.kill(int(place.name), signal.SIGKILL)
            except OSError:  # it has ended, or is somebody else's
                continue

    def side(self, side, task, run):
        """Its outcome: of the first session that fails, or of the last."""
        self.call(f"rm -rf {run} {run}[0-9]*")
        before, elsewhere = None, {}
        for line, folder in side.lines(self.keel, task, run):
            code, output = self.call(line)
            if not folder:
                continue
            outcome = Outcome(code, output, self.folder / folder, resumed=before is not None)
            if code != ENDS_WELL:
                outcome.wrote = outcome.run.exists()
                return outcome
            self.read(outcome)
            if before and before.run != outcome.run:  # which records the steps of its own alone
                first = min(outcome.records, default=0)
                elsewhere = {step: values for step, values in before.records.items() if step < first}
            outcome.records.update(elsewhere)
            before = outcome
        return outcome

    def read(self, outcome):
        saved = outcome.run / "checkpoints"
        names = sorted(os.listdir(saved))
        outcome.left = [name for name in names if name.endswith(".tmp")] + sorted(os.listdir(self.memory))
        newest = [name for name in names if name.startswith("step-") and not name.endswith(".tmp")][-1]
        outcome.step = int(newest.removeprefix("step-"))
        outcome.model = digest((outcome.run / "model.safetensors").read_bytes())
        outcome.tensors, outcome.state = read_checkpoint(saved / newest)
        outcome.records = read_records(outcome.run)


def digest(data):
    return hashlib.sha1(data).hexdigest()[:12]


def read_checkpoint(folder):
    """Each tensor's dtype, shape and hash, however ranks have written it, and where the run stands."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = [(folder / name).read_bytes() for name, *_ in manifest["files"]]
    pieces = {}
    for tensor, file, begin, end, offset, _ in manifest["extents"]:
        pieces.setdefault(tensor, []).append((begin, end, file, offset))
    tensors = {}
    for number, (section, name, dtype, shape) in enumerate(manifest["tensors"]):
        written = {}
        for begin, end, file, offset in sorted(pieces.get(number, [])):
            data = files[file][offset:offset + (end - begin) * BYTES[dtype]]
            if written.setdefault((begin, end), data) != data:
                written[begin, end] += b" and another writer's"
        tensors[f"{section}:{name}"] = f"{dtype} {shape} {digest(b''.join(written.values()))}"
    return tensors, {key: value for key, value in manifest["state"].items() if key != "config"}


def read_records(run):
    """step: what metrics.jsonl has of it, without what is measured; a second value of a name is told by its own."""
    records = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        known = records.setdefault(record["step"], {})
        for name, value in record.items():
            if not MEASURED.search(name) and known.setdefault(name, value) != value:
                known[f"{name}, written twice"] = value
    return records
