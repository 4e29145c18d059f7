"""Which test of a program fails, asked often: the tests that are likely to fail come first, then the short ones."""

import concurrent.futures
import glob
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

BEGUN = re.compile(r"^\[ RUN      \] (\S+)", re.MULTILINE)
TOOK = re.compile(r"^\[       OK \] \S+ \((\d+) ms\)", re.MULTILINE)
SLOW = "Slow*:*/Slow*"
SHORTEST_BATCH = 0.2  # seconds; starting a program takes a tenth of it


def end_group(process):
    """Ends a process that leads a group, with all that it has started, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def bound():
    """A change may make a program allocate, or write, without end."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    resource.setrlimit(resource.RLIMIT_AS, (half, half))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 33, 1 << 33))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class OwnTime:
    """Seconds that pass for a process: less where other programs hold the core that its threads wait for."""

    def __init__(self, process):
        self.process, self.seconds, self.seen, self.threads = process, 0, time.monotonic(), {}

    def look(self):
        now, ran, waited, threads = time.monotonic(), 0, 0, {}
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            try:
                with open(path) as file:
                    threads[path] = [int(word) for word in file.read().split()[:2]]
            except OSError:  # a thread that has ended
                continue
            before = self.threads.get(path, [0, 0])
            ran, waited = ran + threads[path][0] - before[0], waited + threads[path][1] - before[1]
        self.threads = threads
        share = ran / (ran + waited) if ran + waited > 0.2e9 * (now - self.seen) else 1  # 1: it sleeps
        self.seconds, self.seen = self.seconds + share * (now - self.seen), now
        return self.seconds


class Tests:
    """Those of one program: how long each takes, which changes it reaches, and which have noticed changes of a file."""

    def __init__(self, program, only, folder, floor, longest, without):
        self.program, self.folder, self.floor, self.longest = program, folder, floor, longest
        self.name = os.path.basename(program)
        self.filter = f"--gtest_filter={only}-{SLOW}" + (f":{without}" if without else "")
        self.seconds, self.noticed, self.reached = {}, {}, {}

    def measure(self, workers, library, changes):
        """What each test takes and which of so many changes it reaches, alone in a process of its own; those that take too
        long, now or at an earlier time, are left out. The unchanged program must pass."""
        kept = self.folder / f"{self.name}.seconds.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        names = [name for name in self.listed() if known.get(name, 0) <= self.longest]
        self.seconds, self.reached = {}, {}
        with concurrent.futures.ThreadPoolExecutor(len(workers.all)) as pool:
            for name, took, reached in pool.map(lambda name: self.measured(name, workers, library, changes), names):
                if took is None:
                    print(f"{self.name}: {name} fails without any change, and is left out", flush=True)
                    continue
                known[name] = took
                if took <= self.longest:
                    self.seconds[name], self.reached[name] = took, reached
        if names and not self.seconds:
            sys.exit(f"mutate: {self.program} fails without any change")
        kept.write_text(json.dumps(known, indent=0))

    def listed(self):
        text = subprocess.run([self.program, self.filter, "--gtest_list_tests"], cwd=self.folder, check=True, text=True,
                              capture_output=True).stdout
        suite = ""
        for line in text.splitlines():
            name = line.partition("#")[0].rstrip()
            if not line.startswith(" "):
                suite = name
            elif "DISABLED_" not in suite + name:
                yield suite + name.strip()

    def measured(self, name, workers, library, changes):
        """The test's name, seconds, and changes; None for seconds where it fails twice."""
        with workers.one() as worker:
            for _ in range(2):
                marks = worker / "reached"
                marks.write_bytes(bytes(changes))
                begun = time.monotonic()
                process, output = self.start([name], worker, library, {"KEEL_REACHED": str(marks)})
                try:
                    failed = process.wait()
                finally:
                    end_group(process)
                workers.clear(worker)
                if not failed:
                    text = output.read_text(errors="replace")
                    took = TOOK.search(text)
                    seconds = int(took.group(1)) / 1000 if took else time.monotonic() - begun  # a skipped one has no time
                    return name, seconds, {number for number, mark in enumerate(marks.read_bytes()) if mark}
        return name, None, set()

    def batches(self, file, number):
        """First those that noticed changes of this file, then suites with its name and those that noticed changes of
        others, then the rest, in batches as long as all before them; of a change that has a number only those that reach
        it, of others first those that reach a change of the file (which `number` holds the numbers of, then)."""
        every = [test for test in self.seconds if isinstance(number, set) or number in self.reached[test]]
        known = set(every)
        first = [test for test in self.noticed.get(file, []) if test in known]
        if first:
            yield first
        name = os.path.splitext(os.path.basename(file))[0].replace("_", "")
        likely = [test for test in every if name in test.split(".")[0].lower()]
        likely += [test for tests in list(self.noticed.values()) for test in tests] if isinstance(number, set) else []
        likely = [test for test in dict.fromkeys(likely) if test in known and test not in first]
        first = set(first)
        for tests in (likely, every):
            begun, batch, length = 0, [], 0
            for test in sorted(set(tests) - first, key=lambda test: (self.is_far(test, number), self.seconds[test], test)):
                if batch and length + self.seconds[test] > max(begun, SHORTEST_BATCH):
                    yield batch
                    begun, batch, length = begun + length, [], 0
                batch.append(test)
                length += self.seconds[test]
            if batch:
                yield batch
            first.update(tests)

    def is_far(self, test, numbers):
        return isinstance(numbers, set) and not numbers & self.reached[test]

    def notice(self, file, number, workers, worker, library):
        """The test that fails, or "late" where tests do not end in time; none where all pass. `number`: of the change in the
        library that holds several, or the set of those that lie in the same file."""
        for batch in self.batches(file, number):
            found = self.first_failure(batch, number, workers, worker, library)
            if found in self.seconds:
                known = self.noticed.setdefault(file, [])
                if found not in known:
                    known.append(found)
            if found:
                return found
        return None

    def first_failure(self, batch, number, workers, worker, library):
        limit = self.floor + 5 * sum(self.seconds[test] for test in batch)
        chosen = {} if isinstance(number, set) else {"KEEL_CHANGE": str(number)}
        process, output = self.start(batch, worker, library, chosen)
        clock, looked = OwnTime(process), time.monotonic()
        try:
            while process.poll() is None:
                if time.monotonic() > looked + 0.1:
                    looked = time.monotonic()
                    if clock.look() > limit:
                        return "late"
                if workers.stopped:
                    return "stopped"
                time.sleep(0.005)
        finally:
            end_group(process)
        return self.culprit(output) if process.returncode else None

    def start(self, tests, worker, library, more):
        flags, output = worker / "flags", worker / "output"
        flags.write_text(f"--gtest_filter={':'.join(tests)}\n--gtest_break_on_failure\n")
        environment = dict(os.environ, TMPDIR=str(worker / "scratch"), LD_PRELOAD=str(library), **more)
        with open(output, "wb") as out:
            return subprocess.Popen([self.program, f"--gtest_flagfile={flags}"], cwd=worker / "scratch",
                                    stdin=subprocess.DEVNULL, env=environment, stdout=out, stderr=subprocess.DEVNULL,
                                    start_new_session=True, preexec_fn=bound), output

    @staticmethod
    def culprit(output):
        """The test that the program died in, as it does at the first failure."""
        begun = BEGUN.findall(output.read_text(errors="replace"))
        return begun[-1] if begun else "the program"

