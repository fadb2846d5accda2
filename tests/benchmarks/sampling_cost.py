"""What it costs to draw 32 tokens from a vocabulary of 49,152, and what a few sequences that ask for more add.

Logits are random, and sequences have 1,000 distinct tokens behind them: no model runs. A plain greedy batch is held
against torch's own maximum; the others against that plain batch, which shares the step with them.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Final

import torch

from gpu_consumers.engines.slots import StepWork
from gpu_consumers.engines.torch.sampler import Sampler
from gpu_consumers.grammar import GrammarCompiler
from gpu_consumers.plan import Admission, PrefillChunk, SamplingParams, StepPlan
from gpu_consumers.sampling import Draw
from infra.settings import load_settings
from models.smollm2 import ensure_smollm2
from models.tokenizer import Tokenizer, open_tokenizer
from tests.benchmarks.row import BenchRow

ROWS: Final = 32
ASKING: Final = 4
CONTEXT_TOKENS: Final = 1_000
TIMES: Final = 100
EOS: Final = 2
SCHEMA: Final = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "tags"],
    }
)
ASKED: Final = {
    "penalties": SamplingParams(repetition_penalty=1.2, frequency_penalty=0.2),
    "logit bias": SamplingParams(logit_bias=tuple((token, 1.0) for token in range(300))),
    "20 log probabilities": SamplingParams(top_logprobs=20),
    "a JSON schema": SamplingParams(json_schema=SCHEMA),
}


def run() -> list[BenchRow]:
    """Milliseconds: in turns, the best of many, since a thread that waits for another program's is not measured."""
    tokenizer = open_tokenizer(str(ensure_smollm2(load_settings()[0].cache_dir, lambda progress: None)))
    compiler = GrammarCompiler(tokenizer, vocabulary_size=tokenizer.vocabulary_size, eos_token_ids={EOS})
    logits = torch.randn(ROWS, tokenizer.vocabulary_size, generator=torch.Generator().manual_seed(0)).bfloat16() * 4
    with torch.inference_mode():
        bare, plain, *asking = _milliseconds(
            lambda: logits.max(dim=-1).indices.tolist(),
            *(_step(logits, sampling, compiler, tokenizer) for sampling in (SamplingParams(), *ASKED.values())),
        )
    compiler.close()
    rows = [_row(f"sampling_cost of {ROWS} greedy rows, against torch's max", plain, bare, bar=1.3)]
    rows += [
        _row(f"sampling_cost with {name} for {ASKING} of {ROWS}", ours, plain, bar=3.0)
        for name, ours in zip(ASKED, asking, strict=True)
    ]
    return rows


def _row(name: str, ours: float, baseline: float, *, bar: float) -> BenchRow:
    return BenchRow(name, ours, baseline, "ms", bar, higher_is_better=False)


def _step(
    logits: torch.Tensor, sampling: SamplingParams, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> Callable[[], object]:
    """A draw of all rows, of which the first few ask for this and the others for nothing."""
    sampler = Sampler(torch.device("cpu"), compiler)
    asked = [sampling if slot < ASKING else SamplingParams() for slot in range(ROWS)]
    drawn = random.Random(0)
    prompt = tuple(drawn.randrange(tokenizer.vocabulary_size) for _ in range(CONTEXT_TOKENS))
    said = tuple(tokenizer.encode('{"name": "Ann'))
    sampler.begin(
        StepPlan(admitted=tuple(Admission(n, s, 2048, prompt_tokens=len(prompt)) for n, s in enumerate(asked))), ()
    )
    sampler.feed(StepWork(tuple(PrefillChunk(slot, prompt + said, 0, True) for slot in range(ROWS)), (), {}))
    draws = [Draw(sampling, len(said)) for sampling in asked]
    return lambda: sampler.draw(logits, range(ROWS), draws)


def _milliseconds(*draws: Callable[[], object]) -> list[float]:
    best = [float("inf")] * len(draws)
    for _ in range(TIMES):
        for place, draw in enumerate(draws):
            began = time.perf_counter()
            draw()
            best[place] = min(best[place], time.perf_counter() - began)
    return [seconds * 1e3 for seconds in best]
