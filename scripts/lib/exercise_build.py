"""Compiles and links a file as an exercise's program.

CMake builds what the file is linked with, and says by its file API (cmake-file-api(7)) how it would compile and link the
reader's file. Any other file, a submission say, goes the same way.
"""

import json
import os
import re
import resource
import shlex
import subprocess
from pathlib import Path

from exercises import REPOSITORY

COMPILE_SECONDS = 120
COMPILE_BYTES = 4 << 30
SAID_LINES = 40


class CannotBuild(Exception):
    """What keeps the exercise itself from being built, whatever the reader's file has."""


class Refused(Exception):
    """The reader's file does not compile or link: what the compiler says, or words instead."""


def cores():
    return len(os.sched_getaffinity(0))


def cached(build, name):
    try:
        found = re.search(rf"^{name}:[A-Z]+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    except FileNotFoundError:
        return None
    return found.group(1) if found else None


def chosen_folder(exercises):
    """build/, where scripts/quickstart and scripts/test build, unless its kernels are not what the exercises need: then a
    folder of our own."""
    usual = REPOSITORY / "build"
    serves = {None, "EMULATED"} if any(exercise.strand == "cuda" for exercise in exercises) else {None, "EMULATED", "OFF"}
    return usual if cached(usual, "KEEL_CUDA") in serves else REPOSITORY / "build-learn"


class Build:
    def __init__(self, exercises, folder=None):
        self.folder = Path(folder).resolve() if folder else chosen_folder(exercises)
        self.targets = None

    def run_cmake(self, *arguments):
        process = subprocess.run(["cmake", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if process.returncode:
            said = (process.stdout + process.stderr).splitlines()
            raise CannotBuild("\n".join([f"cmake {shlex.join(arguments)} failed:", *said[-SAID_LINES:]]))

    def configure(self):
        """Makes the folder where there is none, and has CMake answer the question of how it compiles and links."""
        question = self.folder / ".cmake/api/v1/query/codemodel-v2"
        if not question.exists():
            question.parent.mkdir(parents=True, exist_ok=True)
            question.touch()
            for answer in self.folder.glob(".cmake/api/v1/reply/index-*.json"):
                answer.unlink()
        if not (self.folder / "CMakeCache.txt").exists():
            self.run_cmake("--preset", "release", "-B", str(self.folder), "-DKEEL_CUDA=EMULATED")
        elif not list(self.folder.glob(".cmake/api/v1/reply/index-*.json")):
            self.run_cmake("-B", str(self.folder), "-S", str(REPOSITORY))

    def prepare(self, exercises):
        """Builds what the programs of these exercises are linked with."""
        self.configure()
        targets = [f"learn_{exercise.name}_check" for exercise in exercises]
        self.run_cmake("--build", str(self.folder), "--parallel", str(cores()), "--target", *targets)
        self.read_answer()

    def read_answer(self):
        reply = self.folder / ".cmake/api/v1/reply"
        index = json.loads(max(reply.glob("index-*.json")).read_text())
        model = json.loads((reply / index["reply"]["codemodel-v2"]["jsonFile"]).read_text())
        self.targets = {
            target["name"]: reply / target["jsonFile"]
            for configuration in model["configurations"]
            for target in configuration["targets"]
            if target["name"].startswith("learn_")
        }

    def commands(self, exercise, source, program):
        """How `source` becomes the object beside `program`, and that `program`."""
        name = f"learn_{exercise.name}"
        if name not in self.targets:
            raise CannotBuild(
                f"{self.folder.name}/ has no {exercise.name}: exercises of CUDA need a build with KEEL_CUDA=EMULATED"
            )
        target = json.loads(self.targets[name].read_text())
        group = target["compileGroups"][0]
        compiler = cached(self.folder, "CMAKE_CXX_COMPILER")
        flags = [
            word
            for fragment in group.get("compileCommandFragments", [])
            for word in shlex.split(fragment["fragment"])
        ]
        for include in group.get("includes", []):
            flags += ["-isystem" if include.get("isSystem") else "-I", include["path"]]
        flags += [f"-D{define['define']}" for define in group.get("defines", [])]
        link = [
            word
            for fragment in target["link"]["commandFragments"]
            for word in shlex.split(fragment["fragment"])
            if fragment["role"] in ("libraries", "libraryPath")
        ]
        thing = str(program) + ".o"
        language = ["-x", "c++"] if source.suffix == ".cu" else []
        return (
            [compiler, *flags, *language, "-c", str(source), "-o", thing],
            [compiler, thing, "-o", str(program), *link],
        )

    def make(self, exercise, source, program):
        """Compiles and links. Returns what the compiler warns of; throws Refused."""
        program.parent.mkdir(parents=True, exist_ok=True)
        compiling, linking = self.commands(exercise, source, program)
        said = self.call(compiling, source)
        self.call(linking, source)
        return said

    def call(self, command, source):
        try:
            process = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=COMPILE_SECONDS,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (COMPILE_BYTES, COMPILE_BYTES)), check=False,
            )
        except subprocess.TimeoutExpired:
            raise Refused(f"The compiler took more than {COMPILE_SECONDS} s.") from None
        said = process.stderr.replace(str(source), source.name).strip()
        if process.returncode == 0:
            return said
        missing = sorted(set(re.findall(r"undefined reference to `([^']+)'", said)))
        if missing and "-c" not in command:
            raise Refused(
                "The file no longer has " + " and ".join(missing) + "; its name and parameters must stay as they were."
            )
        raise Refused("\n".join(said.splitlines()[:SAID_LINES]))
