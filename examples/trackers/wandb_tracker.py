#!/usr/bin/env python3
"""A tracker of keel's type `command` that feeds Weights & Biases (pip install wandb).

    tracker: [{type: command, command: [python3, examples/trackers/wandb_tracker.py, --project, keel]}]

It finds the same W&B run again when keel goes on with a run: its id follows from the run's folder. What a session before
has logged behind the step that keel goes on from is logged again, and W&B shows the later value.
"""

import argparse
import hashlib
import json
import sys

import wandb


def begin(event, options):
    run_id = hashlib.sha256(event["folder"].encode()).hexdigest()[:16]
    run = wandb.init(project=options.project, entity=options.entity, id=run_id, name=event["name"], resume="allow",
                     config=event["settings"], tags=[f"{key}={value}"[:64] for key, value in event["tags"].items()])
    # keel's own step is the axis of all charts: W&B's must only ever grow, and a resumed run's does not.
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return run


def upload(run, event):
    artifact = wandb.Artifact(f"{run.id}-{event['name']}", type=event["name"])
    artifact.add_reference("file://" + event["path"])
    run.log_artifact(artifact)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", default="keel")
    parser.add_argument("--entity")
    options = parser.parse_args()
    run, status = None, "failed"  # where keel is killed, no end comes
    for line in sys.stdin:
        event = json.loads(line)
        kind = event["event"]
        if kind == "start":
            run = begin(event, options)
        elif kind == "record":
            values = {name: float(event["values"].get("nonfinite", {}).get(name, "nan")) if value is None else value
                      for name, value in event["values"].items() if name != "nonfinite"}
            run.log({"step": event["step"], **values})
        elif kind == "text":
            run.summary[event["name"]] = event["text"]
        elif kind == "artifact":
            upload(run, event)
        elif kind == "end":
            status = event["status"]
    if run:
        run.finish(exit_code=0 if status == "finished" else 1)


if __name__ == "__main__":
    main()
