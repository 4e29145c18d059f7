"""What is asked of a run that has ended well: other commands must say what training has said, or the same twice.

Each question returns what is wrong, or nothing, and the line that shows it."""

import json
import shlex

from combination_case import Session, settings
from combination_data import ENCODERS, TASKS
from combination_runs import ENDS_WELL

SHOWN = 4  # differences that a line has
PLANNED = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "bucket_bytes", "checkpoint_bytes")
WINDOW = 100  # steps that no case has: a window whose length is not drawn
# task: the file of examples that a model is asked about.
ASKED = {"sums": "sums.txt", "masked": "masked.txt", "texts": "texts.tsv", "words": "words.jsonl", "table": "table.csv",
         "chats": "asked.jsonl"}
PROMPTS = "prompts.txt"
# Tasks whose models answer from a folder of Hugging Face's form.
FOLDERS_ANSWER = ("windows", "packed", "tokens", "mixture", "texts", "words")


def difference_from_training(runner, a, line):
    """Runs a line that writes evaluation.json: where its numbers are not those that training has said of the last step."""
    code, output = runner.call(line)
    if code != ENDS_WELL:
        return f"{code}: {output[-300:]}"
    told = numbers_in(json.loads((a.run / "evaluation.json").read_text()))
    wanted = {name: value for name, value in a.records[a.step].items() if is_evaluated(name)}
    different = [f"{name}: {value} and {told.get(name)}" for name, value in wanted.items() if told.get(name) != value]
    return "; ".join(different[:SHOWN])


def ask_evaluation(runner, case, a, asked):
    """`keel evaluate` says what training has said of the same step, on any number of ranks and in any stage."""
    ranks, strategy = asked
    words = [runner.keel, "evaluate", a.run.name, "--json", f"{a.run.name}/evaluation.json"]
    line = shlex.join([*words, *averaged(case, a), *shared(ranks, strategy)])
    return difference_from_training(runner, a, line), line


def averaged(case, a):
    """The options by which a command takes the weights that training has evaluated."""
    keys = case.a.sessions[-1].keys
    if keys.get("ema.decay") and keys.get("ema.evaluate", True):
        return ["--ema"]
    return ["--swa"] if keys.get("swa.evaluate") and keys.get("swa.start", a.step) < a.step else []


def shared(ranks, strategy):
    return (["-N", str(ranks), "--threads"] if ranks > 1 else []) + (["--strat", strategy] if strategy else [])


def is_evaluated(name):
    return "validation" in name or name == "exact_match" or "/" in name and not name.startswith(("lr/", "train/"))


def numbers_in(value, name=""):
    """The numbers of a JSON value by their own names."""
    if isinstance(value, dict):
        return {key: number for name, part in value.items() for key, number in numbers_in(part, name).items()}
    if isinstance(value, list):
        return {key: number for part in value for key, number in numbers_in(part, name).items()}
    return {name: value}


def ask_plan(runner, case, a, _):
    """`keel plan` says the memory that the run has measured; bytes are what `keel compare` holds to the formulas."""
    session = case.a.first
    keys = {"device": "cpu", **session.keys}
    del keys["strategy"]
    line = shlex.join([runner.keel, "plan", f"{case.task}.yaml", "-N", str(session.ranks), "--strat",
                       session.keys["strategy"], "--json", *settings(keys)])
    code, output = runner.call(line)
    if code != ENDS_WELL:
        return f"{code}: {output[-300:]}", line
    plan = next(iter(json.loads(output)["plans"].values()))
    peaks = {}
    for text in (a.run / "metrics.jsonl").read_text().splitlines():
        peaks.update({name: value for name, value in json.loads(text).items() if name.startswith("peak_")})
    counted = set(PLANNED)
    # A strategy has all of its buckets once it has been through a whole window.
    window = keys.get("outer.every", 1 if keys.get("outer.type") == "demo" else WINDOW) + keys.get("outer.delay", 0)
    if "outer.type" in keys and keys["steps"] < window:
        counted.remove("bucket_bytes")
    different = [f"{name}: measured {peaks[f'peak_{name}']}, planned {plan.get(name)}" for name in counted
                 if f"peak_{name}" in peaks and peaks[f"peak_{name}"] != plan.get(name)]
    return "; ".join(different), line


def ask_predictions(runner, case, a, asked):
    """`keel predict` writes the same file on any number of ranks and in any stage."""
    ranks, strategy, own = asked
    words = [runner.keel, "predict", a.run.name, "--input", ASKED.get(case.task, PROMPTS), "--force"]
    words += ["eval.answer_tokens=5"] if case.task == "chats" else []
    return twice(runner, a, [*words, "--strat", own], [*words, *shared(ranks, strategy)])


def ask_texts(runner, case, a, asked):
    """`keel generate` continues texts alike on any number of ranks and in any stage."""
    ranks, strategy, own = asked
    prompts = ["--prompts", "sums.txt" if case.task == "sums" else PROMPTS, "--tokens", "9", "--seed", "3", "--force"]
    return twice(runner, a, [runner.keel, "generate", a.run.name, *prompts, "--strat", own],
                 [runner.keel, "generate", a.run.name, *prompts, *shared(ranks, strategy)])


def twice(runner, a, one, other):
    """Two commands that must write the same file."""
    files = [f"{a.run.name}/answers.{number}" for number in (1, 2)]
    line = " && ".join([shlex.join([*words, "--out", file]) for words, file in zip((one, other), files)]
                       + [f"cmp {shlex.join(files)}"])
    code, output = runner.call(line)
    return "" if code == ENDS_WELL else f"{code}: {output[-300:]}", line


def ask_folder(runner, case, a, strategy):
    """A folder of Hugging Face's form is evaluated as the run that it was written from."""
    keys = case.a.sessions[-1].keys
    run, hub = a.run.name, f"{a.run.name}/hub"
    sections = [line.replace(": ", "=", 1) for line in TASKS[case.task].splitlines() if not line.startswith("task:")]
    if case.task in ENCODERS:  # which the folder's config.json names, with its classes
        sections.append("task.metrics=[accuracy, f1_macro]")
    data = settings({key: value for key, value in keys.items()
                     if key.startswith(("data.", "task.", "batch.", "eval.b", "seed"))})
    lines = [[runner.keel, "get", run, "--format", "hf", "--out", hub, "--force", *averaged(case, a)],
             [runner.keel, "evaluate", hub, *sections, *data, "--json", f"{run}/evaluation.json", *shared(2, strategy)]]
    line = " && ".join(shlex.join(words) for words in lines)
    return difference_from_training(runner, a, line), line


def ask_comparison(runner, case, a, asked):
    """`keel compare` finds equal bits and the bytes of the formulas, by any algorithm; its curves have the losses of
    training."""
    strategies, algorithm = asked
    session = case.a.first
    words = [runner.keel, "compare", f"{case.task}.yaml", "-N", str(session.ranks), "--threads", "--steps",
             str(session.keys["steps"]), *settings(session.keys)]
    lines = [[*words, "--repeats", "1", "--strategies", ",".join(strategies), "--algorithms", algorithm],
             [*words, "--curves", f"{a.run.name}/curves"]]
    line = " && ".join(shlex.join(words) for words in lines)
    code, output = runner.call(line)
    if code != ENDS_WELL:
        return f"{code}: {output[-600:]}", line
    curve = json.loads((a.run / "curves/curves.json").read_text())["curves"][0]
    told = dict(zip(curve["step"], curve["loss"]))
    different = [f"step {step} loss: {record['loss']} and {told.get(step)}" for step, record in a.records.items()
                 if "loss" in record and record["loss"] != told.get(step)]
    return "; ".join(different[:SHOWN]), line


def ask_again(runner, case, a, _):
    """Training from the configuration that a run has written repeats it."""
    run = a.run.name
    session = Session(case.a.first.ranks, case.a.first.start, {})
    trained = session.command(runner.keel, f"{run}/config", f"{run}/again")
    line = f"{trained} && cmp {run}/model.safetensors {run}/again/model.safetensors"
    code, output = runner.call(line)
    return "" if code == ENDS_WELL else f"{code}: {output[-300:]}", line


QUESTIONS = {"again": ask_again, "evaluate": ask_evaluation, "plan": ask_plan, "predict": ask_predictions,
             "generate": ask_texts, "folder": ask_folder, "compare": ask_comparison}


def draw_questions(draw, case, precision):
    """What is asked of side a, by the names of QUESTIONS."""
    keys = case.a.sessions[-1].keys
    asked = {}
    strategies = [f"{stage}-{precision}" for stage in ("ddp", "zero1", "zero2", "zero3")]
    ranks, strategy = draw.choice([1, 2, 3]), draw.choice([None, draw.choice(strategies)])
    # An evaluation of groups is a mean over their models, and codes of weights depend on the ranks (docs/comm.md).
    same_weights = "outer.type" not in keys and "sharding.weight_code" not in keys
    one_average = not (keys.get("ema.decay") and keys.get("ema.evaluate", True) and keys.get("swa.evaluate"))
    if draw.happens(0.35) and same_weights and one_average:
        asked["evaluate"] = (ranks, strategy)
    if draw.happens(0.15) and len(case.a.sessions) == 1:
        asked["again"] = ()
    if draw.happens(0.15) and "sharding.weight_code" not in keys:
        asked["predict"] = (ranks, strategy or strategies[3], draw.choice(strategies))
    if draw.happens(0.15) and "sharding.weight_code" not in keys and case.task not in (*ENCODERS, "table"):
        asked["generate"] = (ranks, strategy or strategies[3], draw.choice(strategies))
    # Adapters are added to the weights, which rounds, and GPT-2's form has biases (docs/hugging-face.md).
    # A device sums in another order than the processor, on which a folder is evaluated.
    has_form = case.task in FOLDERS_ANSWER and "model.lora_rank" not in keys and keys.get("model.bias", True)
    has_form = has_form and "device" not in keys
    if draw.happens(0.3) and same_weights and one_average and has_form and precision == "fp32":
        asked["folder"] = draw.choice(strategies)
    # A comparison has no averages of weights, and refuses to go without one that counts.
    averages = keys.get("ema.decay") and keys.get("ema.evaluate", True) or keys.get("swa.start") and (
        keys.get("swa.evaluate") or "swa.rate_factor" in keys)
    if draw.happens(0.1) and len(case.a.sessions) == 1 and "early_stopping.patience" not in keys and not averages:
        # What lies in files may go together with some stages alone (docs/offload.md).
        in_files = any(key.startswith("sharding.offload") for key in keys)
        grouped = keys.get("sharding.group") and "outer.type" not in keys  # ddp has other bits then (docs/comm.md)
        compared = [keys["strategy"]] if in_files else draw.sample(strategies[1:] if grouped else strategies, 2)
        asked["compare"] = (compared, draw.choice(["ordered", "flat", "ring", "tree", "rhd", "hier"]))
    return asked
