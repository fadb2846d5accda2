from __future__ import annotations

from pathlib import Path

import pytest

from infra.builtin_models import builtin_model, builtin_names
from infra.errors import SettingInvalid


def test_the_setting_names_one_or_both() -> None:
    assert builtin_names("smollm2") == ("smollm2",)
    assert builtin_names("echo, smollm2,echo") == ("echo", "smollm2")


@pytest.mark.parametrize("setting", ["gpt", "smollm2@v1", "smollm2,", ""])
def test_another_model_is_refused_with_what_there_is(setting: str) -> None:
    with pytest.raises(SettingInvalid, match="smollm2 and echo"):
        builtin_names(setting)


def test_their_records_say_who_serves_them_and_who_counts_their_tokens() -> None:
    smollm2 = builtin_model("smollm2", Path("/models/smollm2"), 5)
    echo = builtin_model("echo", None, 5)

    assert (smollm2.model_version, smollm2.deployment, smollm2.engine) == ("smollm2@v1", "smollm2-v1", "torch")
    assert smollm2.location == smollm2.tokenizer == "/models/smollm2"
    assert (echo.deployment, echo.engine, echo.tokenizer) == ("echo-v1", "echo", "bytes")
