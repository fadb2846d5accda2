"""What is in the folder of an adapter that is registered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.adapter_folder import CONFIG, WEIGHTS, check_adapter_folder
from infra.errors import AdapterFolderInvalid


def filled(folder: Path, config: str = '{"peft_type": "LORA"}') -> Path:
    (folder / CONFIG).write_text(config)
    (folder / WEIGHTS).touch()
    return folder


def test_a_folder_that_peft_wrote_is_taken(tmp_path: Path) -> None:
    check_adapter_folder(filled(tmp_path))


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda folder: folder / "gone", "there is no such folder"),
        (lambda folder: folder / WEIGHTS, "there is no such folder"),
        (lambda folder: (folder / CONFIG).unlink(), f"it has no {CONFIG}"),
        (lambda folder: (folder / CONFIG).write_text("{") and None, "can't be read"),
        (lambda folder: (folder / CONFIG).write_bytes(b"\xff") and None, "can't be read"),
        (lambda folder: (folder / CONFIG).write_text("[]") and None, "peft_type None"),
        (lambda folder: (folder / CONFIG).write_text(json.dumps({"peft_type": "IA3"})) and None, "peft_type 'IA3'"),
        (lambda folder: (folder / WEIGHTS).unlink(), f"it has no {WEIGHTS}"),
    ],
)
def test_another_folder_is_refused_with_what_is_wrong(
    tmp_path: Path, spoil: Callable[[Path], Path | None], problem: str
) -> None:
    folder = filled(tmp_path)
    with pytest.raises(AdapterFolderInvalid) as refused:
        check_adapter_folder(spoil(folder) or folder)
    assert problem in str(refused.value)
