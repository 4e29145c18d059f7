"""Which test of a program fails, asked often: the tests that are likely to fail come first, then the short ones."""

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
WITHOUT_SLOW = "--gtest_filter=-Slow*:*/Slow*"
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
    """Those of one program: how long each takes, and which have noticed changes of a file."""

    def __init__(self, program, folder, jobs, floor, longest, without):
        self.program, self.folder, self.jobs, self.floor, self.longest = program, folder, jobs, floor, longest
        self.filter = f"{WITHOUT_SLOW}:{without}" if without else WITHOUT_SLOW
        self.seconds, self.noticed = {}, {}

    def measure(self):
        """What each test takes; those that take too long, now or at an earlier time, are left out. The unchanged program
        must pass."""
        report, kept = self.folder / "tests.json", self.folder.parent / f"{os.path.basename(self.program)}.seconds.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        flags = self.folder / "flags"
        flags.write_text(":".join([self.filter, *(test for test, seconds in known.items() if seconds > self.longest)]) + "\n")
        if subprocess.run([self.program, f"--gtest_flagfile={flags}", f"--gtest_output=json:{report}"], cwd=self.folder,
                          preexec_fn=bound, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            sys.exit(f"mutate: {self.program} fails without any change")
        for suite in json.loads(report.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                seconds, name = float(test["time"].rstrip("s")), f"{suite['name']}.{test['name']}"
                if test["status"] == "RUN":
                    known[name] = seconds
                    if seconds <= self.longest:
                        self.seconds[name] = seconds
        kept.write_text(json.dumps(known, indent=0))

    def batches(self, file):
        """First those that noticed changes of this file, then suites with its name and those that noticed changes of
        others, then the rest, in batches as long as all before them."""
        first = [test for test in self.noticed.get(file, []) if test in self.seconds]
        if first:
            yield first
        name = os.path.splitext(os.path.basename(file))[0].replace("_", "")
        likely = [test for test in self.seconds if name in test.split(".")[0].lower()]
        likely += [test for tests in self.noticed.values() for test in tests]
        likely = [test for test in dict.fromkeys(likely) if test in self.seconds and test not in first]
        if likely:
            yield likely
            first = first + likely
        begun, batch, length = 0, [], 0
        for test in sorted(set(self.seconds) - set(first), key=lambda test: (self.seconds[test], test)):
            if batch and length + self.seconds[test] > max(begun, SHORTEST_BATCH):
                yield batch
                begun, batch, length = begun + length, [], 0
            batch.append(test)
            length += self.seconds[test]
        if batch:
            yield batch

    def notice(self, file):
        """The test that fails, or "late" where tests do not end in time; none where all pass."""
        for batch in self.batches(file):
            found = self.first_failure(batch)
            if found in self.seconds:
                known = self.noticed.setdefault(file, [])
                if found not in known:
                    known.append(found)
            if found:
                return found
        return None

    def first_failure(self, batch):
        limit = self.floor + 5 * sum(self.seconds[test] for test in batch)
        running = [self.start(batch[part :: self.jobs], part) for part in range(min(self.jobs, len(batch)))]
        waited = list(running)
        clocks, looked = {process: OwnTime(process) for process, _ in running}, time.monotonic()
        try:
            while waited:
                for process, output in waited:
                    if process.poll() not in (None, 0):
                        return self.culprit(output)
                waited = [each for each in waited if each[0].poll() is None]
                if time.monotonic() > looked + 0.1:
                    looked = time.monotonic()
                    if any(clocks[process].look() > limit for process, _ in waited):
                        return "late"
                time.sleep(0.005)
        finally:
            for process, _ in running:
                end_group(process)
        return None

    def start(self, tests, part):
        flags, output = self.folder / f"flags.{part}", self.folder / f"output.{part}"
        flags.write_text(f"--gtest_filter={':'.join(tests)}\n--gtest_break_on_failure\n")
        with open(output, "wb") as out:
            return subprocess.Popen([self.program, f"--gtest_flagfile={flags}"], cwd=self.folder, stdin=subprocess.DEVNULL,
                                    env=dict(os.environ, TMPDIR=str(self.folder)), stdout=out, stderr=subprocess.DEVNULL,
                                    start_new_session=True, preexec_fn=bound), output

    @staticmethod
    def culprit(output):
        """The test that the program died in, as it does at the first failure."""
        begun = BEGUN.findall(output.read_text(errors="replace"))
        return begun[-1] if begun else "the program"
