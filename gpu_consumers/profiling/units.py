"""Numbers for people."""

from __future__ import annotations


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms" if seconds >= 1e-4 else f"{1e6 * seconds:,.0f} µs"


def size(count: float) -> str:
    """Of bytes."""
    return scaled(count, "B")


def operations(count: float) -> str:
    return scaled(count, "FLOP")


def scaled(count: float, unit: str) -> str:
    """Three digits and a prefix: 1.23 GB."""
    for prefix in ("", "k", "M", "G", "T"):
        if count < 999.5:
            return f"{count:.3g} {prefix}{unit}"
        count /= 1000
    return f"{count:.3g} P{unit}"
