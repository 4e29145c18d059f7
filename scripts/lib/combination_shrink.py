"""Makes a failing case smaller while it still fails in the same way."""

import copy
import time

from combination_checks import run_case

# What a model needs to be small, and what a record is compared by.
STAYS = {"strategy", "threads", "log.every", "steps", "model.layers", "model.width", "model.heads", "model.block",
         "model.type", "model.trunk", "checkpoint.every", "data.sets"}


def without_stop(case):
    for side in "ab":
        for number in range(len(getattr(case, side).stops)):
            smaller = copy.deepcopy(case)
            del getattr(smaller, side).stops[number]
            yield smaller


def without_signal(case):
    for number in range(len(case.b.ends)):
        smaller = copy.deepcopy(case)
        del smaller.b.ends[number]
        yield smaller


def without_check(case):
    for law in case.checks:
        smaller = copy.deepcopy(case)
        del smaller.checks[law]
        yield smaller


def without_key(case):
    for key in sorted({key for session in case.sessions for key in session.keys} - STAYS):
        smaller = copy.deepcopy(case)
        for session in smaller.sessions:
            session.keys.pop(key, None)
        yield smaller


def without_key_of_one(case):
    for number, session in enumerate(case.sessions):
        for key in sorted(session.keys):
            if key not in STAYS and any(other.keys.get(key) != session.keys[key] for other in case.sessions):
                smaller = copy.deepcopy(case)
                del smaller.sessions[number].keys[key]
                yield smaller


def of_one_strategy(case):
    if len({session.keys["strategy"] for session in case.sessions}) > 1:
        smaller = copy.deepcopy(case)
        for session in smaller.sessions:
            session.keys["strategy"] = case.a.first.keys["strategy"]
        yield smaller


def of_threads(case):
    if any(session.start != "threads" for session in case.sessions):
        smaller = copy.deepcopy(case)
        for session in smaller.sessions:
            session.start = "threads"
        yield smaller


WAYS = (without_stop, without_signal, without_check, of_threads, of_one_strategy, without_key, without_key_of_one)


def shrunk(runner, case, verdict, seconds):
    """The smallest case that was found in so many seconds, with its verdict."""
    end = time.monotonic() + seconds
    smaller_than_before = True
    while smaller_than_before:
        smaller_than_before = False
        for way in WAYS:
            again = True
            while again:
                again = False
                for smaller in way(case):
                    if time.monotonic() > end:
                        return case, verdict
                    tried = run_case(runner, smaller)
                    if tried.kind == verdict.kind:
                        case, verdict = smaller, tried
                        again = smaller_than_before = True
                        break
    return case, verdict
