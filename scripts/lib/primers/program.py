"""Where the numbers of the primers' drawings come from: commands of keel, and what was measured once."""

import json
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
MEASURED = pathlib.Path(__file__).resolve().parent / "measured.json"
SHOWN_RUN = "runs/primer"  # the folder of a run, in the commands that pages show


class Unavailable(Exception):
    """This build of keel lacks what the numbers need."""


class Failed(Exception):
    """A command failed, or said something that the drawing does not expect."""


class Keel:
    """Runs commands of the program in the repository, and notes them as the pages show them."""

    def __init__(self, program, place):
        """place: an empty folder for runs and files."""
        self.program, self.place = pathlib.Path(program).resolve(), pathlib.Path(place)
        self.shown = []
        self.runs = 0

    def say(self, words, **values):
        """What a command prints. words: as in a shell, with $name for values; each RUN is a folder of its own."""
        run = self.place / f"run-{self.runs}"
        self.runs += 1
        shown_run = SHOWN_RUN + "".join(f"-${name}" for name in values)
        self.shown.append("build/keel " + words.replace("RUN", shown_run))
        for name, value in values.items():
            words = words.replace(f"${name}", str(value))
        arguments = [each.replace("RUN", str(run)) for each in shlex.split(words)]
        done = subprocess.run([self.program, *arguments], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            if "no part of this build" in done.stderr:
                raise Unavailable(done.stderr.splitlines()[0])
            raise Failed(f"keel {words}: {done.stderr.strip()}")
        self.run = run
        return done.stdout

    def json(self, words):
        return json.loads(self.say(words))

    def records(self, words, **values):
        """The metrics.jsonl of a training in RUN."""
        self.say(words, **values)
        return [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]


def number_in(pattern, text):
    """The whole number that a pattern's group matches."""
    found = re.search(pattern, text)
    if found is None:
        raise Failed(f"'{pattern}' is not in what keel says: {text}")
    return int(found.group(1))


def measured(name):
    return json.loads(MEASURED.read_text())[name]
