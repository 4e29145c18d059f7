"""Small files to train on, made by a fixed seed, and a configuration of each task that reads them."""

import json
import random
import shutil
import subprocess

# task: what its configuration says; keys of a case stand behind it on the command line.
TEXT = "type: text, path: text.txt, tokenizer: byte, validation: 0.05"
TASKS = {
    "windows": f"task: {{type: language}}\ndata: {{{TEXT}}}\n",
    "packed": f"task: {{type: language}}\ndata: {{{TEXT}, packing: true}}\n",
    "tokens": "task: {type: language}\ndata: {type: tokens, path: tokens.bin, validation: 0.1}\n",
    "mixture": "task: {type: language}\ndata: {type: mixture, tokenizer: byte, validation: 0.1, mixture: "
               "[{path: text.txt}, {path: documents.jsonl}]}\n",
    "sums": "task: {type: language}\ndata: {type: addition, digits: 2}\neval: {samples: 24}\n",
    "masked": "task: {type: masked_language, masking: words, probability: 0.3}\n"
              "data: {type: text, path: text.txt, tokenizer: words, validation: 0.05}\n",
    "texts": "task: {type: sequence_classification, metrics: [accuracy, f1_macro]}\n"
             "data: {path: texts.tsv, tokenizer: byte, validation: 0.2}\n",
    "words": "task: {type: token_classification, metrics: [accuracy, f1_macro]}\n"
             "data: {path: words.jsonl, text: [words], label: [tags], tokenizer: words, validation: 0.2}\n",
    "table": "task: {type: supervised}\ndata: {path: table.csv, validation: 0.2}\n",
    "chats": "task: {type: fine_tuning}\n"
             "data: {path: chats.jsonl, template: plain, tokenizer: byte, validation: 0.1, packing: true, long: cut}\n",
}
# Models of Hugging Face's form that a run may begin with: the tasks they fit, and what they are trained by.
FOLDERS = {
    "hub-gpt": (("windows", "packed", "mixture", "chats"), "windows.yaml model.type=gpt model.width=24"),
    "hub-llama": (("windows", "packed", "mixture", "chats"), "windows.yaml model.type=llama model.width=20 model.hidden=52"),
    "hub-bert": (("masked", "words"), "masked.yaml model.type=bert model.width=20 model.hidden=30"),
}
SMALL = "model.layers=2 model.heads=2 model.block=48 steps=1 batch.global=2 eval.batches=1 threads=1"
ENCODERS = ("masked", "texts", "words")
SPECIAL = "[PAD],[UNK],[CLS],[SEP],[MASK]"


def word(draw):
    return "".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(1, 6)))


def sentence(draw, words):
    return " ".join(word(draw) for _ in range(words))


def lines_of(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def table_of(draw, rows):
    """Four numbers, a class and a number that follow from them."""
    lines = ["a,b,c,d,sky,far"]
    for _ in range(rows):
        inputs = [draw.gauss(0, 1.5) for _ in range(4)]
        sky = "xyz"[int(abs(inputs[0] + inputs[1])) % 3]
        lines.append(",".join([f"{value:.4f}" for value in inputs] + [sky, f"{sum(inputs) + draw.gauss(0, 0.1):.4f}"]))
    return "\n".join(lines) + "\n"


def tagged_of(draw):
    count = draw.randint(1, 6)
    return {"words": [word(draw) for _ in range(count)], "tags": [draw.choice("BIO") for _ in range(count)]}


def make_data(folder, keel):
    """Writes all files into a folder that is there, in place of those of an earlier time."""
    draw = random.Random(1)
    for name in ("words", *FOLDERS, "begun"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for old in folder.glob("tokens.*"):
        old.unlink()
    files = {
        "text.txt": "\n".join(sentence(draw, draw.randint(1, 10)) for _ in range(400)) + "\n",
        "documents.jsonl": lines_of({"text": sentence(draw, draw.randint(2, 12))} for _ in range(90)),
        "chats.jsonl": lines_of({"prompt": sentence(draw, 2), "response": sentence(draw, 3)} for _ in range(90)),
        "texts.tsv": "text\tlabel\n" + "".join(f"{sentence(draw, draw.randint(1, 5))}\t{draw.choice('abc')}\n"
                                               for _ in range(80)),
        "words.jsonl": lines_of(tagged_of(draw) for _ in range(80)),
        "table.csv": table_of(draw, 90),
        "prompts.txt": "".join(sentence(draw, draw.randint(1, 3)) + "\n" for _ in range(7)),
        "sums.txt": "".join(f"{draw.randint(10, 99)}+{draw.randint(10, 99)}=\n" for _ in range(7)),
        "masked.txt": "".join(f"{word(draw)[0]} [MASK]\n" for _ in range(7)),
        "asked.jsonl": lines_of({"prompt": sentence(draw, 2)} for _ in range(5)),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    for task, text in TASKS.items():
        (folder / f"{task}.yaml").write_text(text)
    commands = [f"tokenizer train text.txt --out words --vocabulary 300 --special {SPECIAL}",
                "tokenize text.txt --tokenizer words --out tokens.bin"]
    for name, (_, keys) in FOLDERS.items():
        commands += [f"train {keys} {SMALL} run=begun/{name}", f"get begun/{name} --format hf --out {name}"]
    for command in commands:
        done = subprocess.run([keel, *command.split()], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{keel} {command}: {done.stderr.strip()}")
