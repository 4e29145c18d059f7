"""A copy of the tree, its build, and what a change makes of one layer's library there. The copy itself is never changed:
each worker compiles, links and runs in a folder of its own."""

import contextlib
import fcntl
import os
import queue
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from noticing import Tests, end_group
from switches import switch_of, switched

FOR_GPUS = re.compile(r"\bcuda/|\bnccl_")
# Beside the program that has the layer's name: what tests sources with such names instead.
OTHER_PROGRAMS = {
    "comm": {"test_comm_tcp": re.compile(r"/(tcp_|shared_segment)")},
    "trainer": {"test_trackers": re.compile(r"/tracker")},
}
# Behind it: tests of the layer on devices, and in engines.
BEHIND = {
    "comm": {"test_cuda": "StagedCollectives.*"},
    "strategies": {"test_parallel": "*OuterSteps*:FastComponents.*:SurvivingEngines.*:RestartedGroups.*:DisturbedSteps.*:CommunicationStrategy.*:Compression.*"},
    "parallel": {"test_cuda": "*Residence*:Offload.*:GradientsOfDevice.*:Staged*:NcclSharded.*:NcclRows.*:*BuffersOnDevice*"},
}
WRONG = re.compile(r"^(/[^\s:]+):(\d+):", re.MULTILINE)


class Workers:
    """Folders for work beside each other."""

    def __init__(self, folder, count):
        self.all = [folder / f"worker.{number}" for number in range(count)]
        self.free = queue.SimpleQueue()
        for worker in self.all:
            shutil.rmtree(worker, ignore_errors=True)
            (worker / "scratch").mkdir(parents=True)
            self.free.put(worker)
        self.stopped = False  # what is under way ends then

    @contextlib.contextmanager
    def one(self):
        worker = self.free.get()
        try:
            yield worker
        finally:
            self.free.put(worker)

    @staticmethod
    def clear(worker):
        """Removes what tests have left."""
        for path in (worker / "scratch").iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()


class Copy:
    """The tree, its build, and the tests."""

    def __init__(self, repository, layer, jobs, own_tests, *how):
        """`how`: what Tests take besides."""
        self.repository, self.layer, self.name, self.jobs = repository, layer, Path(layer).name, jobs
        self.folder = repository / "build-mutate"
        self.tree = self.folder / "tree"
        self.build = self.tree / "build"
        self.own, self.others = f"test_{self.name}", OTHER_PROGRAMS.get(self.name, {})
        self.behind = BEHIND.get(self.name, {})
        programs = dict.fromkeys([self.own, *self.others, *self.behind, *([] if own_tests else ["test_trainer"])])
        self.tests = {each: Tests(str(self.build / "tests" / each), self.behind.get(each, "*"), self.folder, *how)
                      for each in programs}
        self.compiling, self.linking, self.plain = {}, "", {}
        self.seconds = dict.fromkeys(["building", "measuring tests", "compiling", "linking", *self.tests], 0.0)

    @contextlib.contextmanager
    def timed(self, step):
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[step] += time.monotonic() - begun

    def remember(self, noticed):
        """`noticed`: tests that noticed changes of files, {file: [test]}, which are to run first."""
        for tests in self.tests.values():
            tests.noticed.update({file: list(names) for file, names in noticed.items()})

    def take(self):
        """Makes the copy equal to the checkout; what has not changed keeps its time, and so is not compiled again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.folder / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"mutate: another one is at work in {self.folder}")
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                cwd=self.repository, check=True, capture_output=True).stdout.split(b"\0")
        wanted = {Path(os.fsdecode(name)) for name in listed if name and (self.repository / os.fsdecode(name)).is_file()}
        for name in wanted:
            to, contents = self.tree / name, (self.repository / name).read_bytes()
            if not to.is_file() or to.read_bytes() != contents:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(contents)
                shutil.copymode(self.repository / name, to)
        for root, folders, files in os.walk(self.tree):
            folders[:] = [folder for folder in folders if Path(root, folder) != self.build]
            for file in files:
                path = Path(root, file)
                if path.relative_to(self.tree) not in wanted:
                    path.unlink()
        self.workers = Workers(self.folder, self.jobs)

    def sources(self):
        """The layer's own sources: not those of the layers inside its folder, and none for GPUs."""
        folder = self.tree / self.layer
        for path in sorted(folder.rglob("*.cpp")):
            parts = [parent for parent in path.parents if folder in parent.parents]
            is_of_another = any((part / "CMakeLists.txt").exists() for part in parts)
            if not is_of_another and not FOR_GPUS.search(str(path.relative_to(folder))):
                yield str(path.relative_to(self.tree))

    def make(self):
        """Builds the unchanged tree."""
        self.call(["cmake", "--preset", "ci", "-B", str(self.build), "-DBUILD_SHARED_LIBS=ON", "-DKEEL_BUILD_BENCH=OFF",
                   f"-DKEEL_MUTATED={self.name}",
                   f"-DCMAKE_PROJECT_INCLUDE={self.repository}/scripts/lib/mutate.cmake"])
        with self.timed("building"):
            self.call(["cmake", "--build", str(self.build), "--parallel", str(self.jobs), "--target", *self.tests])
        lines = subprocess.run(["ninja", "-C", str(self.build), "-t", "commands", f"keel_{self.name}"], check=True,
                               capture_output=True, text=True).stdout.splitlines()
        for line in lines:
            source = re.search(rf" -o (\S+) -c {re.escape(str(self.tree))}/({re.escape(self.layer)}/\S+)$", line)
            if source:
                self.compiling[source.group(2)] = (line, source.group(1))
        self.linking = [line for line in lines if f" -o {self.layer}/libkeel_{self.name}.so" in line][-1]
        self.library = re.search(r" -o (\S+)", self.linking).group(1)

    def call(self, command):
        log = self.folder / "build.log"
        with open(log, "w") as out:
            if subprocess.run(command, cwd=self.tree, stdout=out, stderr=subprocess.STDOUT).returncode:
                sys.exit(f"{log.read_text()}\nmutate: {' '.join(command[:3])} failed")

    def is_of_library(self, file):
        """Sources of the folder may belong to another library, or to none here."""
        return file in self.compiling

    def programs_for(self, file):
        """Those that test a source, in order."""
        own = next((program for program, names in self.others.items() if names.search(file)), self.own)
        return [own, *self.behind,
                *([] if "test_trainer" not in self.tests or own == "test_trainer" else ["test_trainer"])]

    def run(self, command):
        """What it wrote to its errors; nothing where it succeeds. Ninja would look at the whole tree before."""
        running = subprocess.Popen(command, shell=True, cwd=self.build, env=dict(os.environ, CCACHE_DISABLE="1"), text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        try:
            errors = running.communicate()[1]
            return errors + "\n" if running.returncode else ""
        finally:
            end_group(running)

    def compile(self, file, text, folder):
        """The object that this text makes in the file's place, or nothing, and the compiler's errors."""
        source = folder / Path(file).name
        source.write_text(text)
        command, made = self.compiling[file]
        made_here = source.with_suffix(".o")
        command = command.replace(made, str(made_here)).replace(f" -c {self.tree / file}", f" -c {source}")
        more = f" -w -fmax-errors=0 -I{self.repository}/scripts/lib -I{(self.tree / file).parent}"
        with self.timed("compiling"):
            errors = self.run(command.replace(" -o ", f"{more} -o ", 1))
        return (None if errors else made_here), errors

    def link(self, objects, folder):
        """The library with other objects for some sources, or nothing."""
        library = folder / Path(self.library).name
        command = self.linking.replace(f" -o {self.library}", f" -o {library}", 1)
        for file, made in objects.items():
            command = command.replace(f" {self.compiling[file][1]} ", f" {made} ")
        with self.timed("linking"):
            return None if self.run(command) else library

    def made_alone(self, change, text, folder):
        """"does not compile", "same code", or the library with this change."""
        changed, _ = self.compile(change.file, of_file(self, change.file, change.made_in(text)), folder)
        if not changed:
            return "does not compile"
        contents = changed.read_bytes()
        if (change.file, folder) not in self.plain:
            plain, _ = self.compile(change.file, of_file(self, change.file, text), folder)
            self.plain[change.file, folder] = plain.read_bytes()
        changed.write_bytes(contents)
        if contents == self.plain[change.file, folder]:
            return "same code"
        return self.link({change.file: changed}, folder) or "does not compile"


def of_file(copy, file, text):
    """The text with the name of the file that it stands for, which texts of errors hold."""
    return f'#line 1 "{copy.tree / file}"\n{text}'


class Switches:
    """One library that holds many changes, each behind a switch that has the change's number."""

    def __init__(self, copy, changes, sources):
        self.copy, self.sources = copy, sources
        self.folder = copy.folder / "switched"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.held = {}  # {file: {number: change}}
        for number, change in enumerate(changes):
            if switch_of(number, change):
                self.held.setdefault(change.file, {})[number] = change
        self.library = None

    def holds(self, number, change):
        return number in self.of_file(change.file)

    def of_file(self, file):
        return self.held.get(file, {})

    def make(self, pool):
        """Compiles what the compiler takes, in `pool`, and links it. Returns how many changes it holds."""
        files = sorted(self.held)
        objects = {file: made for file, made in zip(files, pool.map(self.compiled, files)) if made}
        self.library = self.copy.link(objects, self.folder)
        if not self.library:
            sys.exit("mutate: the library with switches cannot be linked")
        return sum(len(changes) for changes in self.held.values())

    def compiled(self, file):
        """Takes changes away at the lines that the compiler names until it takes the rest."""
        folder = self.folder / file.replace("/", ".")
        folder.mkdir()
        left = self.held[file]
        while left:
            text = '#include "switch.h"\n' + of_file(self.copy, file, switched(self.sources[file], left))
            made, errors = self.copy.compile(file, text, folder)
            if made:
                return made
            rows = {int(row) for path, row in WRONG.findall(errors) if path == str(self.copy.tree / file)}
            for number in [number for number, change in left.items() if change.number in rows] or list(left):
                del left[number]
        return None
