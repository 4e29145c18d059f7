#!/usr/bin/env python3
"""Training steps of transformers' models in PyTorch on the CPU: the peer of keel's catalog of models.

  train_model.py --setting llama --write FOLDER       the model, as it begins, and one batch, for all contestants
  train_model.py --setting llama --folder FOLDER      time steps on that batch
  train_model.py ... --serve                          time steps on request (see train_gpt.serve())

A step is that of train_gpt.py: forward, backward, clipping to global norm 1, AdamW, clearing. Attention is PyTorch's
own (sdpa), which transformers takes unless asked otherwise. A folder has config.json, model.safetensors and
batch.safetensors: `tokens` and `labels`, i64 (batch, time), where a decoder's label is the token that follows, an
encoder's the token that was masked, and -100 does not count.
"""

import argparse
import dataclasses
import json
import os

import common
import torch
import train_gpt
import transformers
from safetensors.torch import load_file, save_file


@dataclasses.dataclass
class Setting:
    config: transformers.PretrainedConfig
    batch: int
    time: int


def bert(dropout):
    return transformers.BertConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)


SETTINGS = {
    "llama": lambda: Setting(
        transformers.LlamaConfig(
            vocab_size=32000,
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=2,
            max_position_embeddings=512,
        ),
        batch=4,
        time=512,
    ),
    "bert": lambda: Setting(bert(0.1), batch=8, time=128),
    "bert-no-dropout": lambda: Setting(bert(0.0), batch=8, time=128),
}
MASK = 103  # BERT's [MASK]


def model_class(config):
    return transformers.LlamaForCausalLM if config.model_type == "llama" else transformers.BertForMaskedLM


def write(setting, folder, seed):
    """One model and one batch. 15 % of an encoder's tokens are masked."""
    torch.manual_seed(seed)
    model = model_class(setting.config)(setting.config)
    tokens = torch.randint(1000, setting.config.vocab_size, (setting.batch, setting.time))
    if setting.config.model_type == "llama":
        labels = torch.full_like(tokens, -100)
        labels[:, :-1] = tokens[:, 1:]
    else:
        masked = torch.rand(tokens.shape) < 0.15
        labels = torch.where(masked, tokens, -100)
        tokens = torch.where(masked, MASK, tokens)
    model.save_pretrained(folder)
    save_file({"tokens": tokens, "labels": labels}, os.path.join(folder, "batch.safetensors"))


class MeanLoss(torch.nn.Module):
    """The model's own loss. A decoder shifts labels itself, so it gets the tokens for labels."""

    def __init__(self, folder):
        super().__init__()
        config = transformers.AutoConfig.from_pretrained(folder)
        self.model = model_class(config).from_pretrained(folder, dtype=torch.float32)
        self.shifts = config.model_type == "llama"
        if hasattr(config, "use_cache"):
            self.model.config.use_cache = False

    def forward(self, tokens, labels):
        return self.model(input_ids=tokens, labels=tokens if self.shifts else labels).loss


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--setting", choices=sorted(SETTINGS), required=True)
    parser.add_argument("--write", metavar="FOLDER", help="write the model and the batch, and end")
    parser.add_argument("--folder", help="that --write has written")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--threads", type=int, default=common.default_threads())
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the timed ones")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help="step when standard input says so")
    options = parser.parse_args()
    if (options.write is None) == (options.folder is None):
        parser.error("give either --write or --folder")
    return options


def main():
    options = parse_options()
    common.set_threads(options.threads)
    if options.write:
        write(SETTINGS[options.setting](), options.write, options.seed)
        return
    batch = load_file(os.path.join(options.folder, "batch.safetensors"))
    model = MeanLoss(options.folder).train()
    trainer = train_gpt.Trainer(model, options, lambda: (batch["tokens"], batch["labels"]))
    for _ in range(options.warmup):
        trainer.step()
    if options.serve:
        train_gpt.serve(trainer)
        return
    times = trainer.timed_steps(steps=options.steps)
    shape = Shape(*batch["tokens"].shape)
    print(json.dumps(train_gpt.report(trainer, shape, options, times)), flush=True)


@dataclasses.dataclass
class Shape:
    batch: int
    block: int


if __name__ == "__main__":
    main()
