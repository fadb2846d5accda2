"""How much memory the weights of a model take, in whatever layout they lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor


def tensor_bytes(*holders: object) -> int:
    """Of all tensors that are reached from these; what several share counts once.

    Looked into: mappings, sequences, attributes, and what functions close over (a norm is a function over its weight).
    oneDNN's packed weights show no storage: they count as their numbers.
    """
    return sum(_storages(holders).values())


def _storages(holders: tuple[object, ...]) -> dict[int, int]:
    """Bytes by what tells one storage from another."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    left: list[object] = list(holders)
    while left:
        held = left.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        if not isinstance(held, Tensor):
            left.extend(_parts(held))
        elif held.is_mkldnn:
            found[id(held)] = held.numel() * held.element_size()
        else:
            storage = held.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return found


def _parts(held: object) -> Iterator[Any]:
    match held:
        case Mapping():
            yield from held.values()
        case tuple() | list():
            yield from held
        case partial():
            yield from (held.func, *held.args, *held.keywords.values())
        case FunctionType():
            yield from (cell.cell_contents for cell in held.__closure__ or ())
        case _ if is_dataclass(held) and not isinstance(held, type):
            yield from (getattr(held, field.name) for field in fields(held))
        case _ if type(held).__module__.startswith("gpu_consumers."):
            yield from getattr(held, "__dict__", {}).values()
