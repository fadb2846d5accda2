"""Every metric of a GPU consumer, in one place. vLLM's names with our prefix where vLLM has one for it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.errors import ContractError

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
_STEP_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class WorkerMetrics:
    """A registry of its own for each worker, so that several can live in one process."""

    def __init__(self, *, deployment: str, worker: str) -> None:
        self.registry = CollectorRegistry()
        labels = {"deployment": deployment, "worker": worker}

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(name, about, tuple(labels), registry=self.registry).labels(**labels)

        def counter(name: str, about: str) -> Counter:
            return Counter(name, about, tuple(labels), registry=self.registry).labels(**labels)

        def histogram(name: str, about: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(name, about, tuple(labels), buckets=buckets, registry=self.registry).labels(**labels)

        # The scheduler.
        self.running = gauge("headrace:num_requests_running", "Requests that hold a slot")
        self.waiting = gauge("headrace:num_requests_waiting", "Requests that wait for a slot")
        self.queue_seconds = histogram("headrace:request_queue_time_seconds", "From pulled to a slot")
        self.preemptions = counter("headrace:num_preemptions", "Times that a request lost its slot and waited again")
        self.resumptions = counter("headrace:num_resumptions", "Times that such a request got a slot again")
        self.kv_blocks = gauge("headrace:kv_cache_blocks", "Blocks of KV memory; 0: the engine counts none")
        self.kv_blocks_used = gauge("headrace:kv_cache_blocks_used", "Blocks that the batch is counted with")
        self.kv_usage = gauge("headrace:kv_cache_usage_perc", "The same as a part of all blocks; 1 is all of them")

        # The engine.
        self.steps = counter("headrace:engine_steps", "Steps executed")
        self.deferred_steps = counter("headrace:engine_steps_deferred", "Steps that did not fit into memory")
        self.step_seconds = histogram("headrace:engine_step_seconds", "Duration of a step", _STEP_SECONDS)
        self.prompt_tokens = counter("headrace:prompt_tokens", "Tokens prefilled")
        self.cached_prompt_tokens = counter(
            "headrace:prefix_cache_hits", "Prompt tokens that were cached, not prefilled"
        )
        self.generation_tokens = counter("headrace:generation_tokens", "Output tokens made")

        # LoRA adapters.
        self.adapters_placed = gauge("headrace:lora_adapters", "LoRA adapters in the engine's memory")
        self.adapters_awaited = gauge("headrace:num_requests_waiting_for_adapter", "Requests that wait for an adapter")
        self.adapter_loads = counter("headrace:lora_loads", "Adapters put into the engine's memory")
        self.adapter_evictions = counter("headrace:lora_evictions", "Adapters that gave their place to another")
        self.adapter_failures = counter("headrace:lora_load_failures", "Adapters that could not be loaded")
        self.adapter_load_seconds = histogram("headrace:lora_load_seconds", "Reading an adapter, off the step path")

        # What clients feel, from the work order's arrival here on.
        self.time_to_first_token = histogram("headrace:time_to_first_token_seconds", "From pulled to the first token")
        self.inter_token = histogram("headrace:inter_token_latency_seconds", "Between tokens of a request")
        self.e2e_seconds = histogram("headrace:e2e_request_latency_seconds", "From pulled to the terminal event")

        # How requests end; failed and dropped (another worker goes on) beside vLLM's reasons.
        self._finished = Counter(
            "headrace:request_success", "Requests that ended, by reason", (*labels, "finished_reason"),
            registry=self.registry,
        )  # fmt: skip
        self._labels = labels

        # The log: what comes in, what goes out, what holds it up.
        self.open_records = gauge("headrace:open_records", "Records taken from the work topics and not finished")
        self.partitions = gauge("headrace:assigned_partitions", "Partitions of work topics held")
        self.paused_partitions = gauge("headrace:paused_partitions", "Partitions paused because enough is held")
        self._dead_letters, self._dead_letters_lost = (
            Counter(name, about, (*labels, "reason"), registry=self.registry)
            for name, about in (
                ("headrace:dead_letters", "Records that could not be understood"),
                ("headrace:dead_letters_lost", "Dead letters that the log did not take"),
            )
        )
        self._unreadable = Counter(
            "headrace:unreadable_records", "Unreadable records that others keep, by who met them",
            (*labels, "reader", "reason"), registry=self.registry,
        )  # fmt: skip
        self.recovered = counter("headrace:recovered_requests", "Requests whose log was read for earlier attempts")
        self.unacknowledged = gauge("headrace:unacknowledged_records", "Records sent and not acknowledged")
        self.log_busy = counter("headrace:log_busy", "Times that the engine loop waited for the producer")
        self.dropped_reports = counter("headrace:telemetry_dropped", "Reports that the log did not take")

    def memory(self, used_blocks: int, blocks: int) -> None:
        """Of `blocks` of KV memory so many are in use."""
        self.kv_blocks.set(blocks)
        self.kv_blocks_used.set(used_blocks)
        self.kv_usage.set(used_blocks / blocks if blocks else 0.0)

    def dead_lettered(self, reason: str) -> None:
        """One record that could not be understood, by the stable reason."""
        self._dead_letters.labels(**self._labels, reason=reason).inc()

    def dead_letter_lost(self, reason: str) -> None:
        """Its letter can't be written: it is in its own topic only."""
        self._dead_letters_lost.labels(**self._labels, reason=reason).inc()

    def unreadable(self, reader: str, error: ContractError) -> None:
        """One record that a reader by assignment could not read: lookahead, recovery or registry."""
        self._unreadable.labels(**self._labels, reader=reader, reason=error.code).inc()

    def finished(self, reason: str) -> None:
        """One request ended: stop, length, cancelled, timeout, failed or dropped."""
        self._finished.labels(**self._labels, finished_reason=reason).inc()
