"""LoRA adapters by their places, as vLLM wants them named."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_consumers.adapter_gate import PutWeights
from gpu_consumers.engines.vllm.api import VllmApi
from gpu_consumers.errors import AdapterUnavailableError

RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Highest ranks that vLLM can be told to make room for."""


def vllm_rank(rank: int) -> int:
    """The room that vLLM must be told to make for adapters of this rank: the next of RANKS, or its last."""
    return next((known for known in RANKS if known >= rank), RANKS[-1])


class Adapters:
    """A number of its own for each adapter that was ever placed: vLLM tells them apart by it."""

    def __init__(self, api: VllmApi) -> None:
        self._api = api
        self._numbers: dict[str, int] = {}
        self._placed: dict[int, str] = {}
        self._requests: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._requests

    def __getitem__(self, key: str) -> Any:
        """vLLM's LoRARequest. Raises KeyError for an adapter that has no place."""
        return self._requests[key]

    def read(self, key: str, location: str) -> PutWeights:
        """What puts it into a place. Any thread. Raises AdapterUnavailableError, whose words clients read."""
        if not (Path(location) / "adapter_config.json").is_file():
            raise AdapterUnavailableError("its folder has no adapter_config.json: it is no adapter in PEFT's layout")
        return partial(self._put, key, location)

    def _put(self, key: str, location: str, place: int) -> None:
        gone = self._placed.get(place)
        if gone is not None:
            del self._requests[gone]
        number = self._numbers.setdefault(key, len(self._numbers) + 1)
        self._placed[place] = key
        self._requests[key] = self._api.lora_request(lora_name=key, lora_int_id=number, lora_path=location)
