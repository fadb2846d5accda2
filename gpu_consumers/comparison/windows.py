"""A text that is longer than a model's context, as windows. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens [begin, end) run together; those from `first` on are scored, each once in all windows."""

    begin: int
    end: int
    first: int


def windows(tokens: int, size: int) -> tuple[Window, ...]:
    """Of so many tokens each, at most. Every token but the text's first is scored, and has at least half a window
    before it in sight, or all that there is: windows that only lie end to end would ask for tokens out of nowhere, and
    be harder on a model than its service is.

    Raises ValueError for windows of fewer than 2 tokens.
    """
    if size < 2:
        raise ValueError(f"windows of {size} tokens leave nothing to score")
    found: list[Window] = []
    first = 1
    while first < tokens:
        end = min(tokens, size if not found else first + size // 2)
        found.append(Window(max(0, end - size), end, first))
        first = end
    return tuple(found)


def spread(begin: int, end: int, most: int) -> frozenset[int]:
    """At most so many of [begin, end), evenly."""
    count = min(most, end - begin)
    return frozenset(begin + i * (end - begin) // count for i in range(count))
