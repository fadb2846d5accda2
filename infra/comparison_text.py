"""The text that two models are compared on: a file, or ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.errors import ComparisonTextUnusable

SAMPLE: Final = Path(__file__).with_name("comparison_sample.txt")
"""Prose, a talk, code, a table and two other languages: written for Headrace, so that no model has seen it before, and
under its licence (Apache-2.0)."""

MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class ComparisonText:
    """name: for people."""

    name: str
    text: str


def comparison_text(path: Path | None) -> ComparisonText:
    """Of the file, or of the sample. Raises ComparisonTextUnusable."""
    if path is None:
        return ComparisonText("Headrace's sample", SAMPLE.read_text(encoding="utf-8"))
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ComparisonTextUnusable(path, f"it has {size:,} bytes, {MOST_BYTES:,} at most: give a part of it")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ComparisonTextUnusable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ComparisonTextUnusable(path, f"it is no text in UTF-8 (byte {error.start})") from error
    return ComparisonText(path.name, text)
