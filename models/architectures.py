"""The model architectures that the torch engine runs, for those who must know without torch."""

from __future__ import annotations

from typing import Final

ARCHITECTURES: Final = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "MinistralForCausalLM",
    "SmolLM3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Phi3ForCausalLM",
    "GemmaForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Starcoder2ForCausalLM",
    "GPT2LMHeadModel",
)
"""As `architectures` in a config.json names them."""
