#!/usr/bin/env python3
"""The Tokenizers library or tiktoken over the lines of a text: "step N" on standard input encodes it N times.

Answers as bench_tokenizer does; bench/compare_tokenizer.py races them.

  tokenizer.py tokenizers TOKENIZER.json TEXT
  tokenizer.py tiktoken FOLDER TEXT          a folder with encoder.json and vocab.bpe
"""

import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def encoder_of(library, name):
    """Calls with a line give the number of its tokens."""
    if library == "tokenizers":
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(name)
        return lambda line: len(tokenizer.encode(line, add_special_tokens=False).ids)
    import tiktoken
    import tiktoken.load

    ranks = tiktoken.load.data_gym_to_mergeable_bpe_ranks(
        vocab_bpe_file=os.path.join(name, "vocab.bpe"), encoder_json_file=os.path.join(name, "encoder.json")
    )
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    encoding = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    return lambda line: len(encoding.encode_ordinary(line))


def main():
    library, name, path = sys.argv[1:4]
    encode = encoder_of(library, name)
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    ends = text.split("\n")
    lines = [line + "\n" for line in ends[:-1]] + ([ends[-1]] if ends[-1] else [])
    size = len(text.encode())
    for line in sys.stdin:
        word, *count = line.split()
        if word != "step":
            break
        start = time.perf_counter()
        for _ in range(int(count[0])):
            tokens = sum(map(encode, lines))
        answer = {"steps": int(count[0]), "seconds": time.perf_counter() - start, "tokens": tokens, "bytes": size}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
