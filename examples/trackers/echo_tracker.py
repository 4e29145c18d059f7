#!/usr/bin/env python3
"""A tracker of keel's type `command` that draws nothing: it says what it is told.

    tracker: [{type: command, command: [python3, examples/trackers/echo_tracker.py]}]

keel appends what it prints to logs/tracker-command.log in the run's folder. Each line of the standard input is one JSON
object, whose "event" is start, record, text, artifact or end (docs/trackers.md).
"""

import json
import sys


def main():
    for line in sys.stdin:
        event = json.loads(line)
        kind = event.pop("event")
        if kind == "start":
            print(f"start {event['name']} after step {event['step']}, {len(event['settings'])} settings")
        elif kind == "record":
            values = " ".join(f"{name}={value}" for name, value in event["values"].items())
            print(f"step {event['step']} {values}")
        elif kind == "end":
            print(f"end {event['status']}")
        else:
            print(kind, *event.values())
        sys.stdout.flush()


if __name__ == "__main__":
    main()
