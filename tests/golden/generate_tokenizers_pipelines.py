#!/usr/bin/env python3
"""Whole tokenizers of the Tokenizers library: small tokenizer.json files of each family, and what they make of texts.

The file: see README.md. The files are trained on texts drawn from the words below.
"""

import json
import sys

import golden

SEED = 11
WORDS = ["the", "then", "there", "king", "kings", "Öl", "naïve", "walked", "walking", "talk", "I'm", "don't", "12", "3456", ".", ",", "!",
         "漢字", "дом", "a", "ab", "abab"]
OTHERS = ["<mask>", "  <mask> ", "[MASK]", "<s>", "</s>", "<|end|>", "😀", "e\u0301", "\u3000", "\n", "  ", "king", "Kings", "kingly",
          "\u00a0", "ﬁ", "▁", "##a", "<0x41>", ""]


def drawn(name, count, words, most):
    numbers = iter(golden.words(SEED, name, 4 * count * (most + 1)).tolist())
    texts = []
    for _ in range(count):
        parts = [words[next(numbers) % len(words)] + (" " if next(numbers) % 4 else "") for _ in range(next(numbers) % (most + 1))]
        texts.append("".join(parts))
    return texts


def template(post, specials, single, pair):
    return post.TemplateProcessing(single=single, pair=pair, special_tokens=specials)


def byte_level(t, size=290, prefix=False, pre=None, normalizer=None, specials=(), post=None, added=(), **options):
    made = t.Tokenizer(t.models.BPE(**options))
    if normalizer is not None:
        made.normalizer = normalizer
    made.pre_tokenizer = pre or t.pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    made.decoder = t.decoders.ByteLevel()
    made.train_from_iterator(drawn("train", 300, WORDS, 9), t.trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), initial_alphabet=t.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made.add_tokens(list(added))
    if post is not None:
        made.post_processor = post
    return made


def with_byte_fallback(t, metaspace):
    """As Llama 2 and Mistral: spaces are characters of the vocabulary, and what it lacks is bytes."""
    pieces = t.Tokenizer(t.models.BPE(unk_token="<unk>"))
    pieces.normalizer = t.normalizers.Sequence([t.normalizers.Prepend("▁"), t.normalizers.Replace(" ", "▁")])
    pieces.pre_tokenizer = t.pre_tokenizers.Split("▁", "merged_with_next")
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    pieces.train_from_iterator(drawn("train", 300, WORDS, 9), t.trainers.BpeTrainer(
        vocab_size=340, special_tokens=specials, show_progress=False, limit_alphabet=24))
    file = json.loads(pieces.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if token["id"] < 3]
    file["model"].update(fuse_unk=True, byte_fallback=True)
    file["pre_tokenizer"] = None
    if metaspace:
        file["normalizer"] = None
        file["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    file["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    made = t.Tokenizer.from_str(json.dumps(file))
    made.post_processor = template(t.processors, [("<s>", 1)], "<s> $A", "<s> $A <s>:1 $B:1")
    return made


def unigram(t, normalizer, specials, unknown, post):
    made = t.Tokenizer(t.models.Unigram())
    made.normalizer = normalizer
    made.pre_tokenizer = t.pre_tokenizers.Metaspace()
    made.decoder = t.decoders.Metaspace()
    made.train_from_iterator(drawn("train", 300, WORDS, 9), t.trainers.UnigramTrainer(
        vocab_size=90, special_tokens=specials, unk_token=unknown, show_progress=False))
    made.post_processor = post
    file = json.loads(made.to_str())
    file["model"]["vocab"] = [[text, round(score, 4)] for text, score in file["model"]["vocab"]]  # read as they are written
    return t.Tokenizer.from_str(json.dumps(file))


def word_piece(t, post):
    made = t.Tokenizer(t.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = t.normalizers.BertNormalizer()
    made.pre_tokenizer = t.pre_tokenizers.BertPreTokenizer()
    made.decoder = t.decoders.WordPiece()
    made.train_from_iterator(drawn("train", 300, WORDS, 9), t.trainers.WordPieceTrainer(
        vocab_size=90, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    made.post_processor = post
    return made


def families(t):
    added, post = t.AddedToken, t.processors
    mask = added("<mask>", lstrip=True, special=True, normalized=False)
    yield "gpt2", byte_level(t, specials=["<|end|>"], post=post.ByteLevel(trim_offsets=False))
    yield "roberta", byte_level(t, specials=["<s>", "</s>", mask], prefix=True, post=post.RobertaProcessing(("</s>", 1), ("<s>", 0)))
    yield "llama3", byte_level(t, ignore_merges=True, pre=t.pre_tokenizers.Sequence([
        t.pre_tokenizers.Split(t.Regex(r"\s?\p{L}+|\p{N}|[^\s\p{L}\p{N}]+|\s+"), "isolated"),
        t.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        added=[added("<|end|>", special=True, normalized=False)])
    yield "added", byte_level(t, normalizer=t.normalizers.Sequence([t.normalizers.NFKC(), t.normalizers.Lowercase()]),
                              post=post.ByteLevel(trim_offsets=True, add_prefix_space=False), added=[
        added("Kings", single_word=True), added("king", rstrip=True), added("▁"), added("<mask>", lstrip=True, rstrip=True, normalized=False)])
    yield "llama2", with_byte_fallback(t, False)
    yield "mistral", with_byte_fallback(t, True)
    yield "bert", word_piece(t, template(post, [("[CLS]", 2), ("[SEP]", 3)], "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))
    yield "bert_old", word_piece(t, post.BertProcessing(("[SEP]", 3), ("[CLS]", 2)))
    yield "xlmr", unigram(t, t.normalizers.NFKC(), ["<s>", "<pad>", "</s>", "<unk>", mask], "<unk>",
                          template(post, [("<s>", 0), ("</s>", 2)], "<s> $A </s>", "<s> $A </s> </s> $B </s>"))


def tokens(encoding, windows=True):
    words = [-1 if word is None else word for word in encoding.word_ids]
    places = [place for pair in encoding.offsets for place in pair]
    row = [encoding.ids, encoding.type_ids, places, words, encoding.special_tokens_mask, encoding.attention_mask]
    return row + [[tokens(each, False) for each in encoding.overflowing]] if windows else row


def case(name, made):
    file = made.to_str()
    texts = drawn(name, 8, WORDS + OTHERS, 7)
    singles = [[text, tokens(found), made.decode(found.ids, skip_special_tokens=False), made.decode(found.ids)]
               for text in texts for found in [made.encode(text)]]
    pairs = [[a, b, tokens(made.encode(a, b)), tokens(made.encode(a, b, add_special_tokens=False))]
             for a, b in zip(texts[:2], texts[4:6])]
    cut = []
    for strategy, side, length, stride in (("longest_first", "right", 18, 2), ("longest_first", "left", 21, 1), ("only_first", "right", 30, 2)):
        made.enable_truncation(length, stride=stride, strategy=strategy, direction=side)
        made.enable_padding(direction=side, pad_id=1, pad_token="x", pad_to_multiple_of=4)
        pair = [list(each) for each in zip(texts[2:4], texts[6:8])]
        try:
            cut.append([strategy, side, length, stride, pair, [tokens(found) for found in made.encode_batch(pair)]])
        except BaseException as error:  # what it cannot cut, it reports so
            if not any(word in str(error) for word in ("Truncation error", "stride")):
                raise
            cut.append([strategy, side, length, stride, pair, None])
    return {"name": name, "file": file, "texts": singles, "pairs": pairs, "cut": cut}


def generate(stored=None):
    """Trains the files; of stored ones, takes them as they are, since training may depend on the order of a table."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: F401

    if stored is not None:
        made = [(each["name"], tokenizers.Tokenizer.from_str(each["file"])) for each in stored["cases"]]
    else:
        made = families(tokenizers)
    return {"cases": [case(name, each) for name, each in made]}


if __name__ == "__main__":
    sys.exit(golden.run_json(
        __doc__, "tokenizers_pipelines.json", generate, again=generate, ensure_ascii=False, separators=(",", ":")
    ))
