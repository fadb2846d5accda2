"""What is in the folder of an adapter that is registered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.adapter_folder import CONFIG, WEIGHTS, check_adapter_folder
from infra.errors import AdapterFolderInvalid

PLAIN: dict[str, Any] = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}


def filled(folder: Path, **options: Any) -> Path:
    (folder / CONFIG).write_text(json.dumps(PLAIN | options))
    (folder / WEIGHTS).touch()
    return folder


@pytest.mark.parametrize(
    "options", [{}, {"use_rslora": True}, {"bias": "none", "modules_to_save": None, "rank_pattern": {"q_proj": 4}}]
)
def test_a_folder_with_plain_lora_is_taken(tmp_path: Path, options: dict[str, Any]) -> None:
    check_adapter_folder(filled(tmp_path, **options))


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda folder: folder / "gone", "there is no such folder"),
        (lambda folder: folder / WEIGHTS, "there is no such folder"),
        (lambda folder: (folder / CONFIG).unlink(), f"it has no {CONFIG}"),
        (lambda folder: (folder / CONFIG).write_text("{") and None, "is no JSON"),
        (lambda folder: (folder / CONFIG).write_bytes(b"\xff") and None, "is no JSON"),
        (lambda folder: (folder / CONFIG).write_text("[]") and None, "holds no JSON object"),
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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"peft_type": "IA3"}, "its peft_type is 'IA3'; only LORA is supported"),
        ({"use_dora": True}, "it is a DoRA adapter (use_dora), which is not supported"),
        ({"bias": "all"}, "it has biases (bias is 'all')"),
        ({"modules_to_save": ["lm_head"]}, "it replaces whole modules (modules_to_save)"),
        ({"init_lora_weights": "pissa"}, "it changes the model's own weights"),
        ({"r": 0}, f"r in {CONFIG} is 0; it is a number above 0"),
        ({"alpha_pattern": {"(": 8}}, "which is no pattern"),
    ],
)
def test_what_engines_refuse_by_the_configuration_is_refused_in_their_words(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AdapterFolderInvalid) as refused:
        check_adapter_folder(filled(tmp_path, **options))
    assert problem in str(refused.value)


def test_looking_takes_no_torch() -> None:
    code = "import sys, infra.adapter_folder; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
