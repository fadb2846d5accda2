from __future__ import annotations

from pathlib import Path

import pytest

from infra.contender import Contender, contender
from infra.errors import ContenderInvalid

PLAIN, INT8 = Contender("", "bfloat16"), Contender("", "bfloat16", "int8")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("chat@v1", Contender("chat@v1", "bfloat16")),
        ("chat@v1:float16", Contender("chat@v1", "float16")),
        ("chat@v1:int8", Contender("chat@v1", "bfloat16", "int8")),
        ("chat@v1:float32:int8", Contender("chat@v1", "float32", "int8")),
    ],
)
def test_a_number_format_may_follow_the_name(written: str, expected: Contender) -> None:
    assert contender(written, PLAIN) == expected


def test_a_bare_name_is_what_the_settings_say_and_a_dtype_says_it_all() -> None:
    assert contender("chat", INT8) == Contender("chat", "bfloat16", "int8")
    assert contender("chat:bfloat16", INT8) == Contender("chat", "bfloat16")


def test_a_label_says_name_and_format() -> None:
    assert contender("/models/chat/:float32", PLAIN).label == "chat:float32"
    assert contender("/models/chat:int8", PLAIN).label == "chat:bfloat16:int8"


def test_a_directory_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    strange = tmp_path / "a:b"
    strange.mkdir()
    assert contender(str(strange), PLAIN) == Contender(str(strange), "bfloat16")
    assert contender(f"{strange}:float16", PLAIN) == Contender(str(strange), "float16")


@pytest.mark.parametrize(
    "written", ["chat:int3", "chat:", "", ":float32", "http://x", "chat:int8:float32", "chat:float32:float16"]
)
def test_what_is_no_format_is_told_with_those_that_are(written: str) -> None:
    with pytest.raises(ContenderInvalid, match="write NAME, NAME:DTYPE, NAME:int8 or NAME:DTYPE:int8"):
        contender(written, PLAIN)
