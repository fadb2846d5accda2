"""The torch engine: one plan, one forward pass, one token for each sequence that is due one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.adapter_gate import PutWeights
from gpu_consumers.engine import EngineInfo, KvUse
from gpu_consumers.engines.parts import Around, uninstrumented
from gpu_consumers.engines.scoring import Scored
from gpu_consumers.engines.slots import SlotTable, StepWork
from gpu_consumers.engines.torch.batch import StepBatch, build_batch
from gpu_consumers.engines.torch.decode_graphs import CudaCapture, DecodeGraphs
from gpu_consumers.engines.torch.footprint import tensor_bytes
from gpu_consumers.engines.torch.kv_memory import Claim, KvLayout, KvMemory
from gpu_consumers.engines.torch.lora_layout import LoraLayout
from gpu_consumers.engines.torch.lora_memory import LoraMemory
from gpu_consumers.engines.torch.model import CausalModel
from gpu_consumers.engines.torch.parallel.orders import Order, Peers
from gpu_consumers.engines.torch.prefix import cache_salt
from gpu_consumers.engines.torch.sampler import NOT_GUIDED, Sampler
from gpu_consumers.engines.torch.scoring import CHUNK_TOKENS, scored
from gpu_consumers.engines.torch.warm_up import warm_up_plans
from gpu_consumers.grammar import GrammarCompiler
from gpu_consumers.plan import Admission, PrefillChunk, StepPlan, StepResult
from gpu_consumers.sampling import Draw
from models.tokenizer import Tokenizer

log = logging.getLogger("headrace.worker")

_LIGHT_STEP_TOKENS: Final = 2
_FAILED_ON_RANK_0: Final = "it failed on rank 0"
_NOT_CACHED: Final = "the plan counts on cached tokens that are not there"


class TorchEngine:
    """Continuous batching: sequences join and leave between steps, prefill chunks run beside decodes.

    A step is one forward pass over all its tokens, whatever their number: a decode that has one more token to
    run and a chunk of a prompt differ in nothing but their attention.
    Rows of a matrix product are computed apart, so a sequence that goes wrong (NaN) leaves its neighbours alone.
    Its neighbours' number, though, may choose another order of summation in the matrix library: logits of one
    sequence are equal up to rounding in different company, not to the bit. In fp32 that flips no token in
    practice; in bf16 near ties can flip.
    """

    def __init__(
        self,
        model: CausalModel,
        info: EngineInfo,
        *,
        dtype: torch.dtype,
        device: torch.device,
        layout: KvLayout,
        prefix_cache_bytes: int = 0,
        adapter_places: int = 0,
        adapter_max_rank: int = 64,
        records_graphs: bool = True,
    ) -> None:
        """`load_torch_engine` makes one from a model's directory.

        info: its `kv_blocks` are reserved here, of `block_tokens` as the layout has them.
        adapter_places: LoRA adapters that are held at once. adapter_max_rank: the highest rank that one may have.
        records_graphs: whether `warm_up` may record decode steps as CUDA graphs, where FlashAttention serves.
        """
        self._model = model
        self._info = info
        self._dtype = dtype
        self._slots = SlotTable(info)
        self._device = device
        self._grammars: GrammarCompiler | None = None
        self._sampler = Sampler(device)
        self._peers: Peers | None = None
        self._spoiled: tuple[int, ...] = ()  # behind the forward pass of the newest step
        self._around: Around = uninstrumented
        self._graphs: DecodeGraphs | None = None
        self._records_graphs = records_graphs
        self._windows = frozenset(rule.window for rule in model.rules)
        self._adapters = LoraMemory(
            LoraLayout(model.shapes, len(model.layers)),
            places=adapter_places,
            max_rank=adapter_max_rank,
            layers_path=model.layers_path,
            dtype=dtype,
            device=device,
            kernels=model.kernels,
        )
        self._memory = KvMemory(
            model.kv_shape,
            blocks=info.kv_blocks,
            dtype=dtype,
            device=device,
            prefix_cache_bytes=prefix_cache_bytes,
            layout=layout,
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def free_blocks(self) -> int:
        """Blocks of KV memory that no sequence holds."""
        return self._memory.free_blocks

    @property
    def kv_bytes(self) -> int:
        """Of KV memory."""
        return self._memory.bytes

    @property
    def weight_bytes(self) -> int:
        return tensor_bytes(self._model.embedding, self._model.layers, self._model.norm, self._model.head)

    @property
    def kv_bytes_per_token(self) -> int:
        return self._memory.bytes // self._memory.capacity_tokens

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def adapter_places(self) -> int:
        return self._adapters.places

    def read_adapter(self, key: str, location: str) -> PutWeights:
        return self._adapters.read(key, location)

    def lead(self, peers: Peers) -> None:
        """From now on other ranks run what is run here: for the engine of rank 0, before its first step."""
        self._peers = peers

    def guide(self, tokenizer: Tokenizer) -> None:
        """From now on answers can be held to JSON schemas: before the first step, with the model's own tokenizer."""
        self._grammars = GrammarCompiler(
            tokenizer, vocabulary_size=self._info.vocabulary_size, eos_token_ids=self._info.eos_token_ids
        )
        self._sampler = Sampler(self._device, self._grammars)

    def prepare_schema(self, json_schema: str, ready: Callable[[str | None], None]) -> object:
        if self._grammars is None:
            ready(NOT_GUIDED)
            return None
        return self._grammars.prepare(json_schema, ready)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        work, failures = self._begin(plan)
        for slot, reason in self._sampler.begin(plan, failures).items():
            failures[slot] = reason
            self._slots.fail(slot, reason)
        work = work.without(failures)
        if self._peers is not None:
            self._peers.step(Order(self._spoiled, plan, tuple(failures)))
        before = set(failures)
        self._sampler.feed(work)
        drawn = self._run_if_it_fits(work) if work.prefills or work.decodes else StepResult()
        failures.update(drawn.failures)
        for slot in failures:
            self._memory.spoil(slot)
        self._spoiled = tuple(failures.keys() - before)
        return StepResult(drawn.tokens, failures, drawn.logprobs, drawn.deferred)

    @torch.inference_mode()
    def follow(self, order: Order) -> None:
        """Run what rank 0 runs. Its head gives no logits here, so nothing is sampled."""
        for slot in order.spoiled:
            self._slots.fail(slot, _FAILED_ON_RANK_0)
            self._memory.spoil(slot)
        work, failures = self._begin(order.plan)
        failures.update(dict.fromkeys(order.failed, _FAILED_ON_RANK_0))
        work = work.without(failures)
        if work.prefills or work.decodes:
            self._run(work)
        for slot in failures:
            self._slots.fail(slot, failures[slot])
            self._memory.spoil(slot)

    def _begin(self, plan: StepPlan) -> tuple[StepWork, dict[int, str]]:
        """Release and admit; what is left to run, and why the rest is not."""
        # First, since what is released now may take the place of what is kept.
        claims = [
            self._memory.claim(cache_salt(admission.tenant, admission.adapter), admission.cached_token_ids)
            for admission in plan.admitted
        ]
        for slot in plan.released:
            self._memory.release(slot)
            self._adapters.release(slot)
        work = self._slots.begin(plan)
        failures = dict(work.failures)
        for admission, claim in zip(plan.admitted, claims, strict=True):
            self._admit(admission, claim, failures)
        return work.without(failures), failures

    def warm_up(self) -> None:
        """See `warm_up_plans`; then decode steps are recorded as CUDA graphs, where that is asked for and can be."""
        for plan in warm_up_plans(self._info, self._sampler.kinds):
            self.execute(plan)
        if self._records_graphs and self._memory.layout.tokens_first:
            self._graphs = self._recorded()

    @torch.inference_mode()
    def _recorded(self) -> DecodeGraphs:
        return DecodeGraphs(
            self._model,
            self._memory,
            slots=self._info.slots,
            max_context_tokens=self._info.max_context_tokens,
            capture=CudaCapture(),
        )

    def cached_tokens(self, tenant: str, token_ids: Sequence[int], adapter: str | None = None) -> int:
        return self._memory.cached_tokens(cache_salt(tenant, adapter), token_ids)

    @torch.inference_mode()
    def score(self, token_ids: Sequence[int], first: int, kept: Collection[int] = ()) -> Scored:
        try:
            logits = self._logits_of(token_ids)
            return scored(logits, token_ids, first, kept, vocabulary_size=self._info.vocabulary_size)
        finally:
            self._memory.release(0)

    def _logits_of(self, token_ids: Sequence[int]) -> Iterator[Tensor]:
        """Behind every token of a sequence that runs by itself in slot 0, in chunks [tokens, vocabulary]."""
        for start in range(0, len(token_ids), CHUNK_TOKENS):
            tokens = tuple(token_ids[start : start + CHUNK_TOKENS])
            self._memory.make_room({0: start + len(tokens)})
            batch = self._batch(StepWork((PrefillChunk(0, tokens, start, last=True),), (), {}))
            rows = torch.arange(len(tokens), device=self._device)
            logits = self._model.forward(replace(batch, output_rows=rows, output_slots=(0,) * len(rows)), self._memory)
            assert logits is not None, "only rank 0 has logits"
            yield logits

    def kv_use(self) -> KvUse:
        return KvUse(self._slots.computed_tokens, self._memory.capacity_tokens)

    def instrument(self, around: Around) -> None:
        self._around = around

    def close(self) -> None:
        """Give the KV memory back, and end what compiles."""
        if self._grammars is not None:
            self._grammars.close()
        for slot in range(self._info.slots):
            self._memory.release(slot)
        if self._peers is not None:
            self._peers.close()

    def _admit(self, admission: Admission, claim: Claim | None, failures: dict[int, str]) -> None:
        slot, reason = admission.slot, failures.get(admission.slot)
        if reason is None:
            reason = _NOT_CACHED if claim is None else self._adapters.begin(slot, admission.adapter)
            if reason is not None:
                failures[slot] = reason
                self._slots.fail(slot, reason)
        if claim is None:
            return
        if reason is None:
            self._memory.begin(slot, claim)
        else:
            self._memory.drop(claim)

    def _run_if_it_fits(self, work: StepWork) -> StepResult:
        """Nothing of a step that runs out of the device's memory counts, and all of it may be run again.

        On several ranks that is the end: the others are in the middle of the step, and wait for this one."""
        try:
            return self._run(work)
        except torch.OutOfMemoryError as error:
            if self._peers is not None:
                raise
            log.warning(
                "a step of %d tokens does not fit into memory, it is run in smaller ones: %s", work.tokens, error
            )
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # only here: the error held what the step had taken
        return StepResult(deferred=work.slots)

    def _run(self, work: StepWork) -> StepResult:
        lengths = {chunk.slot: chunk.start + len(chunk.token_ids) for chunk in work.prefills}
        lengths.update((decode.slot, decode.position + 1) for decode in work.decodes)
        self._memory.make_room(lengths)
        logits, output_slots = self._forward(work)
        for chunk in work.prefills:
            self._memory.written(chunk.slot, chunk.token_ids)
        for decode in work.decodes:
            self._memory.written(decode.slot, (decode.token_id,))
        if logits is None:
            return StepResult()
        draws = [Draw(self._slots[slot].sampling, self._slots.next_output_index(slot)) for slot in output_slots]
        with self._around("sample"):
            drawn = self._sampler.draw(logits, output_slots, draws)
        for slot, reason in drawn.failures.items():
            self._slots.fail(slot, reason)
        return drawn

    def _forward(self, work: StepWork) -> tuple[Tensor | None, tuple[int, ...]]:
        """Logits [slots, vocabulary] and whose they are; None if nobody's are wanted, or not on this rank."""
        if self._graphs is not None and not work.prefills and not self._adapters.adapts(work):
            with self._around("forward"):
                return self._graphs.forward(work.decodes), tuple(decode.slot for decode in work.decodes)
        with self._around("build"):
            work = self._adapters.together(work)
            batch = self._adapters.on(self._batch(work), work)
        with self._around("forward"), _threads_for(len(batch.token_ids)):
            return self._model.forward(batch, self._memory), batch.output_slots

    def _batch(self, work: StepWork) -> StepBatch:
        return build_batch(
            work, self._memory, query_heads=self._model.query_heads, dtype=self._dtype,
            windows=self._windows, compiled=self._model.kernels is not None,
        )  # fmt: skip


@contextmanager
def _threads_for(tokens: int) -> Iterator[None]:
    """Half of torch's CPU threads for a step of one or two tokens.

    Such a step is bound by reading the weights, which half of the cores do as fast as all of them; the rest of the
    machine is left to others, who would otherwise make all threads wait at every operation for the one held up.
    """
    threads = torch.get_num_threads()
    if tokens > _LIGHT_STEP_TOKENS or threads == 1:
        yield
        return
    torch.set_num_threads(threads // 2)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
