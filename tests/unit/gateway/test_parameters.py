"""Which parameters are served, taken or refused."""

from __future__ import annotations

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from gateway.parameters import CHAT_COMPLETIONS, COMPLETIONS, RESPONSES, ParameterTable, name_at


@pytest.mark.parametrize(
    ("table", "official"),
    [
        (RESPONSES, response_create_params.ResponseCreateParamsBase),
        (CHAT_COMPLETIONS, chat_create_params.CompletionCreateParamsBase),
        (COMPLETIONS, completion_create_params.CompletionCreateParamsBase),
    ],
)
def test_every_parameter_of_the_official_package_is_known(table: ParameterTable, official: type) -> None:
    known = table.served | table.harmless | set(table.neutral)
    assert set(official.__annotations__) | {"stream"} <= known


@pytest.mark.parametrize("table", [RESPONSES, CHAT_COMPLETIONS, COMPLETIONS])
def test_a_parameter_stands_in_one_list_only(table: ParameterTable) -> None:
    assert not table.served & set(table.neutral)
    assert not table.harmless & set(table.neutral)
    assert not table.served & table.harmless


@pytest.mark.parametrize("table", [RESPONSES, CHAT_COMPLETIONS, COMPLETIONS])
def test_null_asks_for_nothing(table: ParameterTable) -> None:
    table.check(dict.fromkeys([*table.served, *table.harmless, *table.neutral]))


@pytest.mark.parametrize(
    ("endpoint", "names"),
    [
        ("responses", {"messages": "input", "max_output_tokens": "max_output_tokens", "json_schema": "text.format"}),
        ("chat.completions", {"messages": "messages", "max_output_tokens": "max_completion_tokens"}),
        ("completions", {"messages": "prompt", "max_output_tokens": "max_tokens", "top_logprobs": "logprobs"}),
        ("events", {"messages": "messages", "json_schema": "json_schema"}),
    ],
)
def test_a_field_of_the_log_goes_by_the_name_that_the_endpoint_gives_it(endpoint: str, names: dict[str, str]) -> None:
    assert {field: name_at(endpoint, field) for field in names} == names
    assert name_at(endpoint, None) is None
