import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.tokenizer import DirectoryTokenizer
from tests.tiny_model import VOCABULARY_SIZE, make_tiny_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def test_transformers_loads_the_tiny_model_and_answers_to_two_prompts_differ(directory: Path) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)

    answers = []
    for prompt in ("the river", "a fox"):
        inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        output = model.generate(**inputs, max_new_tokens=24, do_sample=False)
        answers.append(output[0][inputs["input_ids"].shape[1] :].tolist())

    assert model.dtype == torch.float32
    assert answers[0] != answers[1]
    assert all(len(set(answer)) > len(answer) // 2 for answer in answers), "an answer repeats one token"


def test_equal_seeds_give_equal_weights_and_the_global_random_state_is_untouched(
    directory: Path, tmp_path: Path
) -> None:
    state = torch.get_rng_state()
    again = make_tiny_model(tmp_path / "again")
    other = make_tiny_model(tmp_path / "other", seed=1)

    assert torch.equal(state, torch.get_rng_state())
    weights = [load_file(path / "model.safetensors")["lm_head.weight"] for path in (directory, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_tokenizer_covers_every_text_and_ends_on_the_id_that_generate_ends_on(directory: Path) -> None:
    tokenizer = DirectoryTokenizer.open(directory)
    model: Any = AutoModelForCausalLM.from_pretrained(directory)
    text = "".join(chr(random.Random(7).choice((0x41, 0xE9, 0x4F60, 0x1F30A)) + i) for i in range(64))

    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocabulary_size == VOCABULARY_SIZE == model.config.vocab_size
    assert tokenizer.eos_token_ids == {model.generation_config.eos_token_id}
