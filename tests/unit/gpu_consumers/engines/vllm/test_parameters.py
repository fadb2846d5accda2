from __future__ import annotations

import pytest

from gpu_consumers.engines.vllm.parameters import cache_salt, sampling_arguments, vllm_seed, why_not_runnable
from gpu_consumers.plan import Admission, SamplingParams


def test_every_sampling_parameter_reaches_vllm_under_its_name() -> None:
    sampling = SamplingParams(
        temperature=0.7, top_p=0.9, top_k=40, seed=11, min_p=0.05, repetition_penalty=1.1, presence_penalty=0.2,
        frequency_penalty=0.3, logit_bias=((5, -100.0),), top_logprobs=3,
    )  # fmt: skip
    assert sampling_arguments(Admission(0, sampling, 50), [1, 2], 20) == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "seed": vllm_seed(11, 0),
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "logit_bias": {5: -100.0},
        "logprobs": 3,
        "max_tokens": 20,
        "ignore_eos": True,
        "detokenize": False,
    }


def test_what_nobody_asked_for_is_left_out() -> None:
    arguments = sampling_arguments(Admission(0, SamplingParams(), 50), [1, 2], 20)
    assert (arguments["logit_bias"], arguments["logprobs"], arguments["temperature"]) == (None, None, 0.0)


def test_the_chosen_tokens_log_probability_alone_can_be_asked_for() -> None:
    assert sampling_arguments(Admission(0, SamplingParams(top_logprobs=0), 50), [1], 20)["logprobs"] == 0


def test_output_of_earlier_attempts_is_penalised_by_bias_and_the_prompt_is_not() -> None:
    sampling = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25, logit_bias=((8, 1.0), (3, 2.0)))
    resumed = Admission(0, sampling, 50, first_output_index=3, prompt_tokens=2)
    assert sampling_arguments(resumed, [8, 9, 8, 7, 8], 20)["logit_bias"] == {8: 0.0, 3: 2.0, 7: -0.75}


def test_without_penalties_earlier_output_changes_no_logit() -> None:
    resumed = Admission(0, SamplingParams(), 50, first_output_index=3, prompt_tokens=2)
    assert sampling_arguments(resumed, [8, 9, 8, 7, 8], 20)["logit_bias"] is None


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_seeds_are_such_as_vllm_takes_and_differ_by_where_the_answer_goes_on(seed: int) -> None:
    seeds = [vllm_seed(seed, index) for index in range(20)]
    assert all(0 <= value < 2**63 for value in seeds)
    assert len(set(seeds)) == 20
    assert seeds == [vllm_seed(seed, index) for index in range(20)]


def test_tenants_and_adapters_share_no_prefix_cache() -> None:
    salts = [cache_salt(*whose) for whose in (("acme", None), ("demo", None), ("acme", "tone@v1"), ("", "tone@v1"))]
    assert len(set(salts)) == 4
    assert None not in salts
    assert cache_salt("", None) is None


def test_guided_output_begins_at_its_beginning() -> None:
    guided = SamplingParams(json_schema="{}")
    assert why_not_runnable(Admission(0, guided, 50)) is None
    assert "send the request again" in str(why_not_runnable(Admission(0, guided, 50, first_output_index=1)))
    assert why_not_runnable(Admission(0, SamplingParams(), 50, first_output_index=1)) is None
