"""vLLM's async API without vLLM: the classes that gpu_consumers/engines/vllm/api.py names, as release 0.32 behaves.

What is as there: the names of parameters and what is refused (VLLMValidationError, from the constructor or from
`generate`), `generate` as an async generator of outputs that are deltas, several tokens in one where the reader was
slow, one end of an answer (finish_reason "length"), abort by cancelling the generator and by request id,
EngineGenerateError for what fails in one request, and EngineDeadError in every request once the engine is dead.

What is not: the tokens. The next one is a function of all tokens before it, and of the seed where the temperature is
above 0.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, TypedDict

from gpu_consumers.engines.vllm.api import VllmApi

POISON = 113
"""A prompt that holds this token fails behind its first output token."""


class VLLMValidationError(Exception):
    """No ValueError there either."""


class EngineGenerateError(Exception):
    pass


class EngineDeadError(Exception):
    def __init__(self) -> None:
        super().__init__("EngineCore encountered an issue. See stack trace (above) for the root cause.")


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1


@dataclass
class StructuredOutputsParams:
    json: str

    def __post_init__(self) -> None:
        json.loads(self.json)


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    logprobs: int | None = None
    max_tokens: int | None = 16
    ignore_eos: bool = False
    detokenize: bool = True
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        if not -2.0 <= self.presence_penalty <= 2.0:
            raise VLLMValidationError(f"presence_penalty must be in [-2, 2], got {self.presence_penalty}.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise VLLMValidationError(f"max_tokens must be at least 1, got {self.max_tokens}.")


@dataclass(frozen=True)
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


class TokensPrompt(TypedDict, total=False):
    prompt_token_ids: list[int]
    cache_salt: str


@dataclass
class AsyncEngineArgs:
    model: str
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    disable_log_stats: bool = False
    structured_outputs_config: dict[str, str] | None = None


@dataclass(frozen=True)
class Logprob:
    logprob: float
    rank: int | None = None


@dataclass
class CompletionOutput:
    token_ids: Sequence[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None = None


@dataclass
class RequestOutput:
    request_id: str
    outputs: list[CompletionOutput]
    finished: bool


@dataclass(frozen=True)
class Call:
    """What `generate` was called with."""

    prompt: TokensPrompt
    sampling_params: SamplingParams
    request_id: str
    lora_request: LoRARequest | None


@dataclass
class AsyncLLM:
    """calls, running, aborted: what a test looks at.

    burst: tokens in one output. pace_seconds: between two outputs of a request. It dies after `tokens_to_live`.
    """

    engine_args: AsyncEngineArgs
    burst: int = 1
    pace_seconds: float = 0.0
    tokens_to_live: int = 1 << 30
    calls: list[Call] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    aborted: list[str] = field(default_factory=list)
    is_shut_down: bool = False

    VOCABULARY = 120

    def __post_init__(self) -> None:
        config = json.loads((Path(self.engine_args.model) / "config.json").read_text())
        self.model_config = SimpleNamespace(
            get_vocab_size=lambda: self.VOCABULARY,
            hf_text_config=SimpleNamespace(eos_token_id=config.get("eos_token_id")),
            try_get_generation_config=lambda: {"eos_token_id": [2, 7]},
        )
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks=10, block_size=16))

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs) -> AsyncLLM:
        asyncio.get_running_loop()  # its output handler begins here only if there is a loop
        if engine_args.max_model_len is not None and engine_args.max_model_len > 4096:
            raise ValueError(f"User-specified max_model_len ({engine_args.max_model_len}) is greater than 4096")
        return cls(engine_args)

    async def generate(
        self,
        prompt: TokensPrompt,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        lora_request: LoRARequest | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        self.calls.append(Call(prompt, sampling_params, request_id, lora_request))
        self._check(prompt, sampling_params)
        self.running.add(request_id)
        tokens, made = list(prompt["prompt_token_ids"]), 0
        most = sampling_params.max_tokens or 16
        try:
            while made < most:
                await asyncio.sleep(self.pace_seconds)
                count = min(self.burst, most - made)
                step = [self._step(tokens, sampling_params, request_id, made + number) for number in range(count)]
                made += count
                finish_reason = "length" if made == most else None
                output = CompletionOutput(
                    [token for token, _ in step],
                    None if sampling_params.logprobs is None else [told for _, told in step],
                    finish_reason,
                )
                yield RequestOutput(request_id, [output], finish_reason is not None)
        except (asyncio.CancelledError, GeneratorExit):
            await self.abort(request_id)
            raise
        finally:
            self.running.discard(request_id)

    async def abort(self, request_id: str) -> None:
        if request_id in self.running:
            self.aborted.append(request_id)
            self.running.discard(request_id)

    def shutdown(self, timeout: float | None = None) -> None:
        self.is_shut_down = True

    def _check(self, prompt: TokensPrompt, sampling_params: SamplingParams) -> None:
        if self.tokens_to_live <= 0:
            raise EngineDeadError
        longest = self.engine_args.max_model_len or 4096
        if len(prompt["prompt_token_ids"]) > longest:
            raise VLLMValidationError(f"The decoder prompt is longer than the maximum model length of {longest}.")
        guide = sampling_params.structured_outputs
        if guide is not None and "$ref" in guide.json:
            raise VLLMValidationError("The provided JSON schema contains features not supported by xgrammar.")

    def _step(
        self, tokens: list[int], sampling_params: SamplingParams, request_id: str, index: int
    ) -> tuple[int, dict[int, Logprob]]:
        """The next token, which goes behind the others, and what is told of it."""
        self.tokens_to_live -= 1
        if self.tokens_to_live < 0:
            raise EngineDeadError
        if POISON in tokens and index:
            _fail(request_id)
        seed = sampling_params.seed or 0 if sampling_params.temperature else 0
        likeliest = (7 * sum(tokens) + 31 * len(tokens)) % self.VOCABULARY
        token = (likeliest + (seed + index) % 5) % self.VOCABULARY if seed else likeliest
        tokens.append(token)
        told = {token: Logprob(-1.5 if token != likeliest else -0.5, 1 + (token - likeliest) % self.VOCABULARY)}
        for rank in range(1, 1 + (sampling_params.logprobs or 0)):
            told.setdefault((likeliest + rank - 1) % self.VOCABULARY, Logprob(-0.5 * rank, rank))
        return token, told


def _fail(request_id: str) -> NoReturn:
    try:
        raise RuntimeError(f"the sampler lost {request_id}")
    except RuntimeError as error:
        raise EngineGenerateError from error


class FakeVllm:
    """An api to open engines with. changes: of the AsyncLLM that it makes, which is in `llm` then."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self.llm: AsyncLLM
        self.api = VllmApi(
            async_llm=SimpleNamespace(from_engine_args=self._from_engine_args),
            engine_args=AsyncEngineArgs,
            sampling_params=SamplingParams,
            structured_outputs=StructuredOutputsParams,
            lora_request=LoRARequest,
            tokens_prompt=TokensPrompt,
            delta=RequestOutputKind.DELTA,
            engine_dead=EngineDeadError,
        )

    def _from_engine_args(self, engine_args: AsyncEngineArgs) -> AsyncLLM:
        self.llm = AsyncLLM.from_engine_args(engine_args)
        for name, value in self._changes.items():
            setattr(self.llm, name, value)
        return self.llm
