"""What transformers' own `generate()` answers: the oracle of the torch engine's tests and benches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

NEAR_TIE = 1e-3
"""Logits this close may change places by rounding alone: also between two ways of calling transformers itself."""


class Oracle:
    """A model directory, loaded by transformers; greedy, and never stopped by an end-of-answer token."""

    def __init__(self, directory: Path, dtype: torch.dtype = torch.float32, *, adapter: Path | None = None) -> None:
        """adapter: the directory of a LoRA adapter, which PEFT lays over the model."""
        self._model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
        if getattr(self._model.config, "attn_logit_softcapping", None) is not None:
            self._model.set_attn_implementation("eager")  # its default leaves the cap of the scores out
        self._model.generation_config.eos_token_id = None
        if adapter is not None:
            from peft import PeftModel

            self._model = PeftModel.from_pretrained(self._model, str(adapter))

    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """What the model gives behind each of these tokens, [tokens, vocabulary]."""
        with torch.inference_mode():
            logits: torch.Tensor = self._model(torch.tensor([list(token_ids)])).logits[0].float()
        return logits

    def answer(self, prompt: Sequence[int], output_tokens: int, **options: Any) -> list[int]:
        """Greedy tokens, up to the first whose place in the order is a matter of rounding.

        options: more of what `generate()` takes, such as penalties.
        """
        ids = torch.tensor([list(prompt)])
        result = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=output_tokens,
            do_sample=False,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
            **options,
        )
        tokens: list[int] = result.sequences[0, len(prompt) :].tolist()
        best = torch.stack(result.scores)[:, 0].topk(2).values
        close = (best[:, 0] - best[:, 1] < NEAR_TIE).nonzero()
        return tokens[: int(close[0])] if len(close) else tokens
