#!/usr/bin/env python3
"""Writes encoder_pairs.json: pairs of texts as transformers gives them to BERT and RoBERTa, from text to gradient.

Tokens are those of transformers' tokenizers, whole and cut in each way; losses are transformers' own, of numbers and of
classes. Arithmetic, weights and what is stored of a tensor: see generate_encoders.py. `--check FILE` compares a file
with a fresh computation and exits with 1 if they differ.
"""

import json
import os
import sys
import tempfile

import numpy as np
import torch

import golden
from generate_encoders import SEED, SHAPE, initial_values, short, summary

RECORDS, LONGEST, BLOCK, CLASSES = 8, 7, 12, 3
SPECIAL = {"bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]}
WORDS = ["sea", "seas", "shore", "seaside", "tide", "tides", "boat", "net"]
PIECES = ["sea", "shore", "tide", "boat", "net", "##s", "##side"]
MERGES = ["s e", "se a", "Ġ sea", "t i", "ti d", "tid e", "Ġ tide", "s h", "n e", "ne t", "o r"]
FAMILIES = {
    "bert": ("Bert", {**SHAPE, "max_position_embeddings": BLOCK}),
    # Positions begin behind the number of padding, which is 1.
    "roberta": ("Roberta", {**SHAPE, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": BLOCK + 2}),
}
TRUNCATIONS = ["longest_first", "only_first", "only_second"]
HEADS = {
    "number": {"num_labels": 1, "problem_type": "regression"},
    "numbers": {"num_labels": 2, "problem_type": "regression"},
    "classes": {"num_labels": CLASSES, "problem_type": "single_label_classification"},
}


def tokenizer_of(family):
    import transformers

    with tempfile.TemporaryDirectory() as place:
        if family == "bert":
            with open(os.path.join(place, "vocab.txt"), "w", encoding="utf-8") as file:
                file.write("".join(piece + "\n" for piece in SPECIAL[family] + PIECES))
            return transformers.BertTokenizerFast.from_pretrained(place)
        characters = sorted(set("".join(WORDS))) + ["Ġ"]
        vocabulary = SPECIAL[family] + characters + [merge.replace(" ", "") for merge in MERGES]
        with open(os.path.join(place, "vocab.json"), "w", encoding="utf-8") as file:
            json.dump({piece: number for number, piece in enumerate(vocabulary)}, file)
        with open(os.path.join(place, "merges.txt"), "w", encoding="utf-8") as file:
            file.write("#version: 0.2\n" + "".join(merge + "\n" for merge in MERGES))
        return transformers.RobertaTokenizerFast.from_pretrained(place)


def texts_of(tokenizer, name):
    """Of 1 to LONGEST tokens, so that each way of cutting leaves some of both texts."""
    drawn = golden.uniform(SEED, name, RECORDS * (LONGEST + 1)).astype(np.float64).reshape(RECORDS, -1)
    texts = []
    for row in drawn:
        words = [WORDS[int(u * len(WORDS))] for u in row[: 1 + int(row[-1] * LONGEST)]]
        while len(words) > 1 and len(tokenizer.tokenize(" ".join(words))) > LONGEST:
            words.pop()
        texts.append(" ".join(words))
    return texts


def run(family, class_name, options, head, tokenizer, first, second, labels):
    import transformers

    config = getattr(transformers, class_name + "Config")(**options, vocab_size=len(tokenizer), **head)
    config.architectures = [class_name + "ForSequenceClassification"]
    config._attn_implementation = "eager"
    model = getattr(transformers, class_name + "ForSequenceClassification")(config).double().eval()
    for name, parameter in model.named_parameters():
        start = initial_values(name, tuple(parameter.shape))
        parameter.data = torch.from_numpy(start.astype(np.float64))
    inputs = tokenizer(
        first, second, truncation="longest_first", max_length=BLOCK, padding=True, return_tensors="pt"
    )
    assert ("token_type_ids" in inputs) == (family == "bert")
    target = torch.tensor(labels, dtype=torch.int64 if head["num_labels"] == CLASSES else torch.float64)
    found = model(**inputs, labels=target)
    found.loss.backward()
    written = json.loads(config.to_json_string(use_diff=True))
    del written["transformers_version"]
    return {
        "config": written,
        "loss": short(found.loss.item()),
        "logits": [[short(x) for x in row] for row in found.logits.tolist()],
        "gradients": {name: summary(name, p.grad) for name, p in model.named_parameters()},
    }


def generate():
    import transformers

    transformers.logging.set_verbosity_error()
    found = {}
    for family, (class_name, options) in FAMILIES.items():
        options = {key: value for key, value in options.items() if key != "vocab_size"}
        tokenizer = tokenizer_of(family)
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        file = tokenizer.backend_tokenizer.to_str()
        first, second = texts_of(tokenizer, "first"), texts_of(tokenizer, "second")
        x = golden.values(SEED, "x", (RECORDS,), scale=2.0).tolist()
        y = golden.values(SEED, "y", (RECORDS,), scale=0.5, offset=3.0).tolist()
        kind = np.floor(golden.uniform(SEED, "kind", RECORDS).astype(np.float64) * CLASSES).astype(int).tolist()
        labels = {"number": x, "numbers": [list(each) for each in zip(x, y)], "classes": kind}
        cuts = {}
        for truncation in TRUNCATIONS:
            cut = tokenizer(first, second, truncation=truncation, max_length=BLOCK)
            cuts[truncation] = {
                "ids": cut["input_ids"],
                "types": cut.get("token_type_ids", [[0] * len(row) for row in cut["input_ids"]]),
            }
        assert len({json.dumps(cut) for cut in cuts.values()}) == len(TRUNCATIONS)
        lengths = [len(row) for row in tokenizer(first, second)["input_ids"]]
        assert min(lengths) < BLOCK < max(lengths)
        found[family] = {
            "tokenizer": file,
            "records": [
                {"first": a, "second": b, "x": p, "y": q, "kind": k}
                for a, b, p, q, k in zip(first, second, x, y, kind)
            ],
            "cuts": cuts,
            "heads": {
                name: run(family, class_name, options, head, tokenizer, first, second, labels[name])
                for name, head in HEADS.items()
            },
        }
    return found


if __name__ == "__main__":
    sys.exit(golden.run_json(
        __doc__, "encoder_pairs.json", generate, compare=golden.json_differences(1e-6, 1e-8), separators=(",", ":")
    ))
