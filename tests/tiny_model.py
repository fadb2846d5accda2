"""A model small enough to make in a test and real enough to serve: a random Llama with its own tokenizer.

The weights are drawn wide (`initializer_range=0.3`, untied embeddings): with the default every request would
repeat one token, and equality with `generate()` would prove nothing.
"""

import json
from functools import cache
from pathlib import Path

import tokenizers
from tokenizers import decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

EOS_TOKEN = "<|im_end|>"
SPECIAL_TOKENS = ("<|im_start|>", EOS_TOKEN)
MAX_CONTEXT_TOKENS = 512
VOCABULARY_SIZE = 384
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = (
    "The quick brown fox jumps over the lazy dog while the river runs through the valley to the sea.",
    "Größe, façade, naïve, señor, żółć, Ελλάδα, привет, мир, שלום, مرحبا, नमस्ते, 你好世界, こんにちは, 안녕하세요.",
    "🌊 🌊🌊 👩‍👩‍👧 🇩🇪 if (x == 0) { return x + 1; }\n\tfor i in range(10):\n        print(i)",
) * 2


@cache
def _tokenizer_json() -> str:
    tokenizer = tokenizers.Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer.to_str()


def tiny_tokenizer() -> tokenizers.Tokenizer:
    """A fresh byte-level BPE tokenizer: the two special tokens, the 256 bytes, and some merges across bytes."""
    return tokenizers.Tokenizer.from_str(_tokenizer_json())


def make_tiny_tokenizer(directory: Path) -> Path:
    """Write the tokenizer's files alone (no torch needed) and return `directory`, made if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(_tokenizer_json(), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS_TOKEN,
        "model_max_length": MAX_CONTEXT_TOKENS,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return directory


def make_tiny_model(
    directory: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden_size: int = 64,
    attention_heads: int = 4,
    key_value_heads: int = 2,
    max_context_tokens: int = MAX_CONTEXT_TOKENS,
) -> Path:
    """Write a random Llama in fp32 with tokenizer and chat template; return `directory`.

    Equal arguments give equal weights. The global random state of torch is left as it was. Two seeds give two
    models that answer differently, for tests of routing.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    make_tiny_tokenizer(directory)
    eos_token_id = SPECIAL_TOKENS.index(EOS_TOKEN)
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=attention_heads,
        num_key_value_heads=key_value_heads,
        max_position_embeddings=max_context_tokens,
        tie_word_embeddings=False,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=eos_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(directory)
    return directory
