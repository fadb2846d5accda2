from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from math import exp, log
from pathlib import Path

import pytest
import torch

from eventlog.clock import monotonic
from gpu_consumers.comparison.run import Comparison, Subject, run_comparison
from gpu_consumers.comparison.speed import Stopwatch
from gpu_consumers.engine import Engine
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.errors import EngineConfigurationError, MemoryShortError
from models.tokenizer import ByteTokenizer, open_tokenizer
from tests.oracle import Oracle
from tests.tiny_model import make_tiny_model

TEXT = "The quick brown fox jumps over the lazy dog, façade; if (x == 0) { return 你好; }\n" * 6
WATCH = Stopwatch(monotonic, lambda seconds: None, seconds=0.02)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("compared"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("other"), seed=1)


def subject(
    directory: Path, *, dtype: str = "float32", context_tokens: int = 512, open: Callable[[], Engine] | None = None
) -> Subject:
    def load() -> TorchEngine:
        return load_torch_engine(directory, dtype=dtype, slots=4, max_context_tokens=context_tokens)

    return Subject(dtype, open_tokenizer(str(directory)), context_tokens, open or load)


def compare(a: Subject, b: Subject, text: str = TEXT) -> Comparison:
    return run_comparison(a, b, text, WATCH)


def test_a_model_agrees_with_itself(tiny: Path) -> None:
    found = compare(subject(tiny), subject(tiny))
    alike = found.agreement
    assert alike is not None
    assert (alike.same_greedy, alike.common_prefix, alike.divergence) == (1.0, alike.continuation_tokens, 0.0)
    assert alike.places == len(found.a.reading.losses)
    assert found.a.reading.perplexity == found.b.reading.perplexity
    assert found.a.weight_bytes == found.b.weight_bytes > 0
    assert found.a.load_seconds > 0


def test_perplexity_is_the_one_that_transformers_has(tiny: Path) -> None:
    found = compare(subject(tiny), subject(tiny)).a.reading
    tokenizer = open_tokenizer(str(tiny))
    ids = tokenizer.encode(TEXT)
    assert len(ids) <= 512
    logits = Oracle(tiny).logits(ids)
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
    assert found.perplexity == pytest.approx(exp(loss), rel=1e-4)
    predicted = len(TEXT.encode()) - len(tokenizer.token_bytes(ids[0]))
    assert found.bits_per_byte == pytest.approx(loss * (len(ids) - 1) / log(2) / predicted, rel=1e-4)


def test_a_text_of_several_windows_counts_each_token_once(tiny: Path) -> None:
    found = compare(subject(tiny, context_tokens=128), subject(tiny))
    ids = open_tokenizer(str(tiny)).encode(TEXT)
    assert found.window_tokens == 128
    assert len(found.b.reading.losses) == len(ids) - 1
    oracle = Oracle(tiny)
    second = oracle.logits(ids[64:192])[:-1].log_softmax(-1)
    expected = -second[range(63, 127), ids[128:192]]
    assert found.a.reading.losses[127:191] == pytest.approx(expected.tolist(), abs=1e-3)


def test_two_models_that_differ_say_how_much(tiny: Path, other: Path) -> None:
    alike = compare(subject(tiny), subject(other)).agreement
    assert alike is not None
    assert alike.same_greedy < 0.5
    assert alike.common_prefix < 5
    assert alike.divergence is not None
    assert alike.divergence > 1


def test_half_precision_is_close_to_the_whole(tiny: Path) -> None:
    found = compare(subject(tiny), subject(tiny, dtype="bfloat16"))
    assert found.agreement is not None
    assert 0.7 < found.agreement.same_greedy <= 1.0
    assert found.a.reading.perplexity != found.b.reading.perplexity
    assert found.b.reading.bits_per_byte == pytest.approx(found.a.reading.bits_per_byte, rel=0.05)


def test_other_tokens_leave_agreement_out(tiny: Path) -> None:
    by_bytes = Subject("bytes", ByteTokenizer(), 512, subject(tiny).open)
    found = compare(subject(tiny), by_bytes)
    assert found.agreement is None
    assert found.b.reading.predicted_bytes == len(TEXT.encode()) - 1
    assert found.a.reading.distributions == ()


def test_the_first_model_is_gone_before_the_second_is_loaded(tiny: Path) -> None:
    opened: list[weakref.ref[Engine]] = []
    alive: list[int] = []

    def load() -> Engine:
        gc.collect()
        alive.append(sum(ref() is not None for ref in opened))
        engine = load_torch_engine(tiny, dtype="float32", slots=2, max_context_tokens=128)
        opened.append(weakref.ref(engine))
        return engine

    compare(subject(tiny, context_tokens=128, open=load), subject(tiny, context_tokens=128, open=load))
    assert alive == [0, 0]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes\nat x"),
    ],
)
def test_a_model_that_does_not_fit_into_memory_is_named(tiny: Path, error: Exception) -> None:
    def load() -> Engine:
        raise error

    with pytest.raises(
        MemoryShortError, match="not enough memory for float32, though no other model was loaded"
    ) as told:
        compare(subject(tiny, open=load), subject(tiny))
    assert "\n" not in str(told.value)


def test_another_error_stays_what_it_is(tiny: Path) -> None:
    def load() -> Engine:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        compare(subject(tiny, open=load), subject(tiny))


def test_a_short_text_is_refused_before_anything_is_loaded(tiny: Path) -> None:
    with pytest.raises(EngineConfigurationError, match=r"the text has 2 tokens for float32: .* at least 64"):
        compare(subject(tiny), subject(tiny), "qz")
    with pytest.raises(EngineConfigurationError, match="the text has 0 tokens"):
        compare(subject(tiny), subject(tiny), "")


def test_an_engine_without_probabilities_is_refused(tiny: Path) -> None:
    echo = Subject("echo", ByteTokenizer(), 512, lambda: EchoEngine(slots=4))
    with pytest.raises(EngineConfigurationError, match="the engine echo tells no probabilities"):
        compare(echo, echo)


def test_a_tokenizer_of_another_model_is_refused(tiny: Path) -> None:
    class Large(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return [1000 + token for token in super().encode(text)]

    with pytest.raises(EngineConfigurationError, match="they do not belong together"):
        compare(subject(tiny), Subject("large", Large(), 512, subject(tiny).open))
