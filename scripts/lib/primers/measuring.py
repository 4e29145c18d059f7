"""Takes the times that two pictures show: a step on a time line, and all-reduce on a slow network."""

import datetime
import json
import re

from primers.program import MEASURED

DELAY_US, MIB = 2000, 20
STEPS = 12
SHORT = {"forward": "f", "backward": "b", "all_gather": "g", "reduce_scatter": "r"}


def short(name):
    """ "forward h.1" is f1, and what is of the root g* or r*."""
    found = re.fullmatch(r"(\w+) (?:h\.(\d+)|the rest)", name)
    if found is None or found.group(1) not in SHORT:
        return ""
    return SHORT[found.group(1)] + (found.group(2) or "*")


def without(span, waits):
    """The parts of (begin, end) in which nothing of `waits` lies."""
    parts, at = [], span[0]
    for begin, end in sorted(waits):
        if end <= at or begin >= span[1]:
            continue
        if begin > at:
            parts.append((at, begin))
        at = max(at, end)
    if at < span[1]:
        parts.append((at, span[1]))
    return parts


def steps_of(trace):
    """Rank 0's events of each whole step: lane -> [(name, begin, length)], in microseconds from the step's begin."""
    events = [e for e in trace["traceEvents"] if e["pid"] == 0]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [(lanes[e["tid"]], e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    for begin, end in sorted((b, e) for _, name, b, e in spans if name.startswith("step ")):
        own = [s for s in spans if begin <= s[2] < end]
        waits = [(b, e) for lane, _, b, e in own if lane == "waiting"]
        step = {"step_us": end - begin, "waited_us": sum(e - b for b, e in waits)}
        step["waiting"] = [("", b - begin, e - b) for b, e in waits]
        step["computing"] = []
        for lane, name, b, e in own:
            if lane != "compute" or not short(name):
                continue
            parts = without((b, e), waits)
            widest = max(parts, key=lambda part: part[1] - part[0], default=None)
            step["computing"] += [
                (short(name) if part == widest else "", part[0] - begin, part[1] - part[0]) for part in parts
            ]
        for key, lane in (("communication", "communication"), ("second", "communication 2")):
            step[key] = [(short(name), b - begin, e - b) for at, name, b, e in own if at == lane]
        yield step


def overlap(keel):
    """A step of median length with each setting."""
    runs = []
    for prefetch in (0, 1):
        keel.say(
            f"launch -N 2 --threads train learn/gpt.yaml device=cpu threads=1 strategy=zero3-fp32 model.layers=3 "
            f"model.width=96 batch.global=512 steps={STEPS} scheduler.warmup=2 eval.every=0 log.trace={STEPS} "
            f"sharding.prefetch={prefetch} --delay 300 --bandwidth 100M run=RUN"
        )
        steps = sorted(steps_of(json.loads((keel.run / "trace.json").read_text())), key=lambda each: each["step_us"])
        runs.append({"prefetch": prefetch, **steps[len(steps) // 2]})
    return {"runs": runs}


def message(keel):
    keel.say(
        f"comm all_reduce -N 4 --threads --device cpu --algorithms direct,ring,tree -b 8 -e 2M -f 8 -n 9 -w 5 "
        f"--delay {DELAY_US} --bandwidth {MIB}M --json RUN.json"
    )
    report = json.loads(keel.run.with_suffix(".json").read_text())
    medians = {}
    for record in report["records"]:
        medians.setdefault(record["algorithm"], []).append((record["bytes"], round(record["out_of_place"]["p50_us"])))
    return {
        "delay_us": DELAY_US,
        "bandwidth": MIB << 20,
        "median_us": medians,
        "machine": report["machine"]["rank 0"],
        "software": report["software"]["compiler"].split(",")[0],
    }


def measure(keel):
    """Writes measured.json, with the commands and the day."""
    found = {}
    for name, take in (("overlap", overlap), ("message", message)):
        keel.shown = []
        numbers = take(keel)
        found[name] = {"date": datetime.date.today().isoformat(), "commands": keel.shown, **numbers}
    found["overlap"]["machine"] = found["message"]["machine"]
    MEASURED.write_text(json.dumps(found, indent=1) + "\n")
