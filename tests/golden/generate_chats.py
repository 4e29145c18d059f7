#!/usr/bin/env python3
"""Writes chats.json: chats as transformers writes them by apply_chat_template, their tokens, and which of these are answers'.

The templates say in Jinja what the formats of Llama 3 Instruct and of ChatML are; `generation` marks what is learnt. The
tokenizer is a small byte-level BPE of the Tokenizers library, trained here, whose pattern is GPT-2's. `--check FILE` compares
a file with a fresh computation.
"""

import json
import sys

import golden

TOKENS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"]

LLAMA3_ROLE = "{{ '<|start_header_id|>' ~ %s ~ '<|end_header_id|>\\n\\n' }}"
CHATML_ROLE = "{{ '<|im_start|>' ~ %s ~ '\\n' }}"


def template(begin, role, content, end, behind):
    said = "{{ %s ~ '%s' }}" % (content, end)
    return (
        begin + "{% for each in messages %}" + role % "each.role"
        + "{% if each.role == 'assistant' %}{% generation %}" + said + "{% endgeneration %}"
        + "{% else %}" + said + "{% endif %}" + behind + "{% endfor %}"
        + "{% if add_generation_prompt %}" + role % "'assistant'" + "{% endif %}"
    )


TEMPLATES = {
    "llama3": template("{{ bos_token }}", LLAMA3_ROLE, "(each.content | trim)", "<|eot_id|>", ""),
    "chatml": template("", CHATML_ROLE, "each.content", "<|im_end|>", "{{ '\\n' }}"),
}


def said(*contents, system=None):
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": "system", "content": system}] if system else []
    return messages + [{"role": role, "content": content} for role, content in zip(roles, contents)]


CHATS = [
    said("What is 2 + 3?", "5"),
    said("Name the capital of France.", "Paris is the capital of France.", system="Answer in one sentence."),
    said("Hello", "Hi! What can I do?", "Sum 10 and 20", "30"),
    said("  spaces at both ends \n", "\n\tand in the answer, too  \n"),
    said("two lines\nof a question", "1. first\n\n2. second\n"),
    said("Grüße aus Köln – 東京 😀", "Ünïcödé: 東京"),
    said("the text <|im_end|> of a token", "and <|eot_id|> here"),
    said("only asked", system="You are terse."),
    said("one", "two", "three"),
]


def generate():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    texts = [message["content"] for chat in CHATS for message in chat] + ["system user assistant\n\n"] * 4
    bpe.train_from_iterator(
        texts * 2,
        trainers.BpeTrainer(
            vocab_size=340, special_tokens=TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=TOKENS[0])
    cases = []
    for name, text in TEMPLATES.items():
        for messages in CHATS:
            asks = messages[-1]["role"] == "user"
            options = {"chat_template": text, "add_generation_prompt": asks}
            written = tokenizer.apply_chat_template(messages, tokenize=False, **options)
            tokens = tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **options
            )
            cases.append({
                "template": name, "messages": messages, "asks": asks, "text": written,
                "ids": list(tokens["input_ids"]), "answers": list(tokens["assistant_masks"]),
            })
    return {"tokenizer": json.loads(bpe.to_str()), "cases": cases}


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "chats.json", generate, line_before='{"template"', separators=(",", ":")))
