"""The vllm engine: our steps over requests that run on inside vLLM.

vLLM has a scheduler of its own, which batches, chunks and preempts as it likes. So a step here starts and stops
requests and then waits until every sequence that owes a token has one: the plan says who is in the batch, vLLM says
how it is run. A sequence begins when its last prefill chunk is planned; its tokens come as vLLM makes them, and those
that nobody has asked for yet wait, no more than the sequence may have.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_consumers.adapter_gate import PutWeights
from gpu_consumers.engine import EngineInfo, KvUse
from gpu_consumers.engines.slots import SlotTable, StepWork
from gpu_consumers.engines.vllm.adapters import Adapters
from gpu_consumers.engines.vllm.api import VllmApi
from gpu_consumers.engines.vllm.parameters import cache_salt, sampling_arguments, why_not_runnable
from gpu_consumers.engines.vllm.streams import Ended, LoopThread, Request, Streams, Token, why_not
from gpu_consumers.plan import Admission, Decode, Logprobs, PrefillChunk, SamplingParams, StepPlan, StepResult

_SHUTDOWN_SECONDS: Final = 1.0  # for vLLM's processes, before it kills them


@dataclass(slots=True)
class _Sequence:
    """What a slot holds. newest_token_id: what vLLM has gone on from; None before its first token."""

    admission: Admission
    prefix: list[int] = field(default_factory=list)
    newest_token_id: int | None = None


class VllmEngine:
    """Sequences fail alone: one that vLLM refuses or gives up is reported in `StepResult.failures`.

    Seeds: equal seeds give equal text as long as vLLM's batches are equal, but what goes on behind k tokens (after a
    crash or a preemption) is drawn anew from there: vLLM's draw is no function of (seed, index).
    """

    def __init__(self, api: VllmApi, llm: Any, loop: LoopThread, info: EngineInfo, *, adapter_places: int = 0) -> None:
        """`open_vllm_engine` makes one from a model's directory. llm: an AsyncLLM that lives on the loop."""
        self._api = api
        self._llm = llm
        self._loop = loop
        self._info = info
        self._adapter_places = adapter_places
        self._adapters = Adapters(api)
        self._slots = SlotTable(info)
        self._sequences: dict[int, _Sequence] = {}
        self._streams = Streams(llm, loop, api.engine_dead)

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def adapter_places(self) -> int:
        return self._adapter_places

    def read_adapter(self, key: str, location: str) -> PutWeights:
        """See that it is there. vLLM itself reads the weights with the first request for them, and says then what is
        wrong with them, to that request."""
        return self._adapters.read(key, location)

    def warm_up(self) -> None:
        """vLLM has warmed itself when it was opened; a few tokens of every slot go through it here."""
        slots = range(self._info.slots)
        admitted = tuple(
            Admission(slot, SamplingParams(slot % 2), min(4, self._info.max_context_tokens)) for slot in slots
        )
        result = self.execute(
            StepPlan(admitted=admitted, prefills=tuple(PrefillChunk(slot, (0,), 0, True) for slot in slots))
        )
        decodes = tuple(Decode(slot, token_id, 1) for slot, token_id in result.tokens.items())
        self.execute(StepPlan(decodes=decodes))
        self.execute(StepPlan(released=tuple(slots)))

    def execute(self, plan: StepPlan) -> StepResult:
        """Raises vLLM's EngineDeadError when vLLM is gone."""
        for slot in plan.released:
            self._forget(slot)
        work = self._slots.begin(plan)
        failures = dict(work.failures)
        for admission in plan.admitted:
            if admission.slot not in failures:
                self._admit(admission, failures)
        due = self._start(work.without(failures), failures) + self._go_on(work.without(failures), failures)
        tokens: dict[int, int] = {}
        logprobs: dict[int, Logprobs] = {}
        self._collect(due, tokens, logprobs, failures)
        for slot in failures:
            self._forget(slot)
        return StepResult(tokens, failures, logprobs)

    def cached_tokens(self, tenant: str, token_ids: Sequence[int], adapter: str | None = None) -> int:
        """None that the scheduler could count on: vLLM's own prefix cache says what it had only afterwards."""
        return 0

    def kv_use(self) -> KvUse:
        cache = self._llm.vllm_config.cache_config
        return KvUse(self._slots.computed_tokens, (cache.num_gpu_blocks or 0) * cache.block_size)

    def close(self) -> None:
        """Ends vLLM's processes."""
        if self._loop.is_closed:
            return
        self._sequences.clear()
        self._streams.close()
        self._loop.call(lambda: self._llm.shutdown(timeout=_SHUTDOWN_SECONDS))
        self._loop.close()
        self._llm = None
        gc.collect()  # now: it is in cycles, and its destructor fails when the interpreter ends

    def _admit(self, admission: Admission, failures: dict[int, str]) -> None:
        reason = why_not_runnable(admission)
        if admission.cached_token_ids:
            reason = "the plan counts on cached tokens that are not there"
        elif admission.adapter is not None and admission.adapter not in self._adapters:
            reason = f"the adapter {admission.adapter} is in no place of this engine"
        if reason is None:
            self._sequences[admission.slot] = _Sequence(admission)
        else:
            self._fail(admission.slot, reason, failures)

    def _start(self, work: StepWork, failures: dict[int, str]) -> list[int]:
        """Take the chunks, and hand those sequences to vLLM whose prefix is whole now."""
        started = []
        for chunk in work.prefills:
            sequence = self._sequences[chunk.slot]
            if sequence.newest_token_id is not None:
                self._fail(chunk.slot, "a prefill chunk behind the first token of the answer", failures)
                continue
            sequence.prefix.extend(chunk.token_ids)
            if chunk.last:
                try:
                    request = self._request(sequence)
                except Exception as error:  # parameters that vLLM does not take: no class of error that lasts
                    self._fail(chunk.slot, why_not(error), failures)
                else:
                    self._streams.start(chunk.slot, request)
                    started.append(chunk.slot)
        return started

    def _go_on(self, work: StepWork, failures: dict[int, str]) -> list[int]:
        due = []
        for decode in work.decodes:
            newest = self._sequences[decode.slot].newest_token_id
            if newest == decode.token_id:
                due.append(decode.slot)
            else:
                said = "has made no token" if newest is None else f"has gone on from token {newest}"
                self._fail(decode.slot, f"the plan decodes token {decode.token_id}, and vLLM {said}", failures)
        return due

    def _collect(
        self, due: list[int], tokens: dict[int, int], logprobs: dict[int, Logprobs], failures: dict[int, str]
    ) -> None:
        for slot, taken in self._streams.take(due).items():
            match taken:
                case Ended(reason):
                    self._fail(slot, reason, failures)
                case Token(token_id, told):
                    tokens[slot] = self._sequences[slot].newest_token_id = token_id
                    if told is not None:
                        logprobs[slot] = told

    def _request(self, sequence: _Sequence) -> Request:
        """Raises what vLLM raises for parameters that it does not take."""
        admission, api = sequence.admission, self._api
        room = min(admission.max_tokens + 1, self._info.max_context_tokens) - len(sequence.prefix)
        parameters = api.sampling_params(
            **sampling_arguments(admission, sequence.prefix, max(1, room)),
            output_kind=api.delta,
            structured_outputs=_structured(api, admission.sampling),
        )
        salt = cache_salt(admission.tenant, admission.adapter)
        prompt = api.tokens_prompt(prompt_token_ids=sequence.prefix, **({} if salt is None else {"cache_salt": salt}))
        lora = None if admission.adapter is None else self._adapters[admission.adapter]
        return Request(prompt, parameters, lora, admission.sampling.top_logprobs)

    def _fail(self, slot: int, reason: str, failures: dict[int, str]) -> None:
        failures[slot] = reason
        self._slots.fail(slot, reason)

    def _forget(self, slot: int) -> None:
        self._sequences.pop(slot, None)
        self._streams.stop(slot)


def _structured(api: VllmApi, sampling: SamplingParams) -> Mapping[str, Any] | None:
    return None if sampling.json_schema is None else api.structured_outputs(json=sampling.json_schema)
