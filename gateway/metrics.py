"""What /metrics tells: one closed list, under vLLM's names with our prefix where vLLM has one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway.response_stream import ResponseStream
from schemas.errors import ContractError
from schemas.events import RequestRejected
from schemas.usage import charged_tokens

_LATENCY_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class GatewayMetrics:
    """One gateway's figures, in a registry of their own.

    Latencies are taken from event times, so they hold for the client's whole wait up to this gateway.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        # Unfinished responses that this gateway follows (vLLM: num_requests_running, here with those that wait).
        self.open_responses = Gauge("headrace:num_requests_running", "Unfinished responses", registry=registry)
        # Open WebSockets.
        self.sockets = Gauge("headrace:websockets_open", "Open WebSockets", registry=registry)
        # Requests that the log has acknowledged.
        self.accepted = Counter("headrace:requests_accepted", "Requests written to the log", registry=registry)
        # Events that connections have taken: WebSocket messages, server-sent events, plain answers.
        self.sent_events = Counter("headrace:events_sent", "Events handed to connections", registry=registry)
        # From the request's arrival to its first token.
        self.first_token = Histogram(
            "headrace:time_to_first_token_seconds", "Arrival to first token", ["model_name"],
            buckets=_LATENCY_SECONDS, registry=registry,
        )  # fmt: skip
        # From the request's arrival to its terminal event.
        self.end_to_end = Histogram(
            "headrace:e2e_request_latency_seconds", "Arrival to terminal event", ["model_name"],
            buckets=_LATENCY_SECONDS, registry=registry,
        )  # fmt: skip
        self.prompt_tokens = Counter(
            "headrace:prompt_tokens", "Prompt tokens of finished responses", ["model_name"], registry=registry
        )
        self.generation_tokens = Counter(
            "headrace:generation_tokens", "Output tokens of finished responses", ["model_name"], registry=registry
        )
        # By what ended it: stop, length, cancelled, timeout, or the code of a rejection or failure.
        self.ended = Counter(
            "headrace:request_success", "Responses that ended", ["finished_reason"], registry=registry
        )  # fmt: skip
        # HTTP answers and WebSocket handshakes, by route template (never by path) and status.
        self.http_answers = Counter("headrace:http_requests", "HTTP answers", ["route", "status"], registry=registry)
        # Clients that were closed with 3008.
        self.slow_clients = Counter("headrace:slow_clients_closed", "Clients closed as too slow", registry=registry)
        # Writes and look-ups that the log did not answer.
        self.log_failures = Counter("headrace:log_failures", "Log writes and look-ups that failed", registry=registry)
        # Records that this gateway's readers could not read and went past; the sink keeps them. reader: tail, backfill
        # or registry.
        self._unreadable = Counter(
            "headrace:unreadable_records", "Records that could not be read", ["reader", "reason"], registry=registry
        )
        # Reports to the telemetry topic that the log did not take.
        self.dropped_reports = Counter("headrace:telemetry_dropped", "Reports not written", registry=registry)
        # ResponseDelivered events that could not be written: the answer was given, the record of it is missing.
        self.unrecorded = Counter("headrace:deliveries_unrecorded", "Deliveries not recorded", registry=registry)

    def unreadable(self, reader: str, error: ContractError) -> None:
        """A reader of the log went past a record that it could not read. Any thread."""
        self._unreadable.labels(reader, error.code).inc()

    def finished(self, stream: ResponseStream, now_us: int) -> None:
        """A response ended while this gateway followed it."""
        terminal, received_at_us = stream.log.terminal, stream.request.received_at_us
        assert terminal is not None
        if isinstance(terminal, RequestRejected):
            self.ended.labels(terminal.code).inc()
            return
        model = terminal.model_version
        self.ended.labels(getattr(terminal, "finish_reason", None) or getattr(terminal, "code", "unknown")).inc()
        self.end_to_end.labels(model).observe(max(0, now_us - received_at_us) / 1e6)
        if terminal.first_token_at_us is not None:
            self.first_token.labels(model).observe(max(0, terminal.first_token_at_us - received_at_us) / 1e6)
        prompt_tokens, output_tokens = charged_tokens(terminal)
        self.prompt_tokens.labels(model).inc(prompt_tokens)
        self.generation_tokens.labels(model).inc(output_tokens)

    def exposition(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)
