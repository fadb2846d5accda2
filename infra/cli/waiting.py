"""Saying what is being done to people who wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def telling(console: Console) -> Iterator[Callable[[str], None]]:
    """Says what it is given: a spinner on a terminal, nothing elsewhere."""
    if not console.is_terminal:
        yield lambda what: None
        return
    with console.status("") as status:
        yield lambda what: status.update(f"{what} ...")
