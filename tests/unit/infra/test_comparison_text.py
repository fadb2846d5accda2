from __future__ import annotations

from pathlib import Path

import pytest

from infra.comparison_text import MOST_BYTES, comparison_text
from infra.errors import ComparisonTextUnusable


def test_without_a_file_it_is_a_sample_of_some_kilobytes() -> None:
    text = comparison_text(None)
    assert "sample" in text.name
    assert 5_000 < len(text.text.encode()) < 10_000


def test_a_file_goes_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "stories.txt"
    file.write_text("Größe", encoding="utf-8")
    assert (comparison_text(file).name, comparison_text(file).text) == ("stories.txt", "Größe")


def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "gone", "No such file"), (tmp_path, "s a directory")):
        with pytest.raises(ComparisonTextUnusable, match=why):
            comparison_text(path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"abc\xff\x00")
    with pytest.raises(ComparisonTextUnusable, match=r"no text in UTF-8 \(byte 3\)"):
        comparison_text(binary)
    large = tmp_path / "large"
    with large.open("wb") as output:
        output.truncate(MOST_BYTES + 1)
    with pytest.raises(ComparisonTextUnusable, match="16,777,217 bytes"):
        comparison_text(large)
