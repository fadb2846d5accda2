"""The engine loop: takes work, plans, executes, writes. One thread, which owns engine, scheduler and generations.

One turn:

1. Take what came in: new work, cancels, work to drop. With nothing to do, wait for it here.
   Every few seconds, report. Who has all that its answer needs (see entrance.py) goes to the scheduler.
2. Ask the scheduler for the next step; requests past their deadline end.
3. Tell the log of those that got a slot, run the step.
4. Give each token to its generation; answers that are whole end, and all tokens are written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue

from eventlog.clock import monotonic, now_us
from eventlog.errors import DeliveryFailed
from gpu_consumers.active import Active
from gpu_consumers.adapter_supply import AdapterSupply
from gpu_consumers.answer_writer import AnswerWriter, WriterStopped
from gpu_consumers.drain import Drain
from gpu_consumers.engine import Engine
from gpu_consumers.entrance import Entrance
from gpu_consumers.generation import Failure, Generation, Model
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.output import FinishReason
from gpu_consumers.plan import StepResult
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import why_not_servable
from gpu_consumers.step import Step
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.step_runner import StepRunner
from gpu_consumers.telemetry import Load, WorkerTelemetry
from gpu_consumers.work import Cancel, Drop, Leave, Message, Prepared, Wake, Weights, Work
from schemas.events import GenerationFailed, GenerationFinished

_IDLE_SECONDS = 1.0

log = logging.getLogger("headrace.worker")


class Worker:
    """`run` until `stop`; the caller provides the thread."""

    def __init__(
        self,
        engine: Engine,
        model: Model,
        writer: AnswerWriter,
        metrics: WorkerMetrics,
        telemetry: WorkerTelemetry,
        *,
        worker_id: str,
        inbox: SimpleQueue[Message],
        done: Callable[[Work], None],
        stop: threading.Event,
        adapters: AdapterSupply | None = None,
    ) -> None:
        """done: called on the producer's thread when work is finished and the log has acknowledged all of it.
        adapters: None for an engine that runs none.
        """
        self._engine = engine
        self._model = model
        self._writer = writer
        self._metrics = metrics
        self._telemetry = telemetry
        self._statistics = telemetry.statistics
        self._worker_id = worker_id
        self._inbox = inbox
        self._done = done
        self._stop = stop
        self._entrance = Entrance(engine, adapters)
        self._scheduler = Scheduler(engine.info, cached_tokens=engine.cached_tokens)
        self._active: dict[str, Active] = {}
        self._unwritten: dict[str, Active] = {}
        self._steps = StepRunner(engine, metrics, telemetry.statistics)
        self._drain: Drain | None = None

    def run(self) -> None:
        """Returns when it is told to stop, or has left, with the engine closed.

        Raises EngineFailedError when the engine is unusable: unfinished requests have no terminal event then, and
        another worker goes on with them.
        """
        try:
            while not self._stop.is_set():
                self._report_if_due()
                self._take_messages()
                if self._has_drained():
                    break
                self._let_in()
                self._turn()
        except WriterStopped:
            log.info("stopped while the log had no room")
        finally:
            self._telemetry.last_report(self._load(), now=monotonic(), now_us=now_us())
            self._engine.close()
            self._entrance.close()

    def _report_if_due(self) -> None:
        now = monotonic()
        if not self._telemetry.due_in(now):
            self._telemetry.report(self._load(), now=now, now_us=now_us())

    def _load(self) -> Load:
        return Load(self._scheduler.running_count, self._waiting_count(), self._engine.kv_use())

    def _waiting_count(self) -> int:
        return self._scheduler.waiting_count + self._entrance.waiting_count

    def set_step_costs(self, costs: StepCosts) -> None:
        """What the engine's steps were measured to take; before `run`."""
        self._steps.measured = costs
        self._scheduler.set_step_costs(costs)

    def _leave(self, message: Leave) -> None:
        """Who has no slot now gets none here: another worker reads the order again."""
        self._drain = Drain(message.until_s, self._engine.info.max_step_tokens)
        self._telemetry.drain_begins(monotonic())
        unbegun = [active for active in self._active.values() if not active.has_slot]
        for active in unbegun:
            self._forget(active)
        log.info("leaving: %d requests run, %d that wait go to others", len(self._active), len(unbegun))

    def _has_drained(self) -> bool:
        if self._drain is None:
            return False
        batch = [active.unfinished for active in self._active.values()]
        if not self._drain.is_over(batch, self._steps.costs, monotonic()):
            return False
        log.info("drained: %d requests that run go on elsewhere", len(batch))
        return True

    def _take_messages(self) -> None:
        idle = not (self._scheduler.running_count or self._scheduler.waiting_count)
        if idle:
            self._scheduler.check_integrity()
        patience = self._patience() if idle else None
        try:
            message = self._inbox.get(block=idle, timeout=patience)
            while True:
                self._take(message)
                message = self._inbox.get_nowait()
        except Empty:
            return

    def _patience(self) -> float:
        """How long there is nothing to do, if no message comes."""
        return min(_IDLE_SECONDS, self._telemetry.due_in(monotonic()), self._entrance.due_in(now_us()))

    def _take(self, message: Message) -> None:
        match message:
            case Work():
                self._begin(message)
            case Cancel(work):
                active = self._active.get(work.order.request_id)
                if active is not None and active.work is work:
                    self._finish(active, "cancelled")
            case Drop(work):
                active = self._active.get(work.order.request_id)
                if active is not None and active.work is work:
                    self._forget(active)
                    self._metrics.finished("dropped")
            case Prepared(work, refusal):
                active = self._active.get(work.order.request_id)
                if active is not None and active.work is work:
                    self._entrance.schema_compiled(work.order.request_id, refusal, now_us())
            case Weights(by_tenant):
                self._scheduler.set_weights(by_tenant)
            case Leave():
                self._leave(message)
            case Wake():
                pass

    def _begin(self, work: Work) -> None:
        if not work.partition.held or self._drain is not None:
            return
        terminal = None if work.prior is None else work.prior.log.terminal
        if isinstance(terminal, GenerationFinished | GenerationFailed):
            self._writer.settle_again(
                terminal, partial(self._done, work), partial(self._lost, work), traceparent=work.traceparent
            )
            return
        if terminal is not None:
            self._done(work)
            return
        generation = Generation(
            work.order, self._model, worker=self._worker_id, pulled_at_us=work.pulled_at_us, prior=work.prior,
            traceparent=work.traceparent,
        )  # fmt: skip
        active = self._active[generation.request_id] = Active(work, generation)
        if generation.finish_reason is not None:
            self._finish(active, generation.finish_reason)
        elif work.cancelled:
            self._finish(active, "cancelled")
        elif work.prior is not None and work.prior.is_deadly:
            self._fail(active, _DEADLY)
        elif (why := why_not_servable(generation.sequence, self._engine.info)) is not None:
            self._fail(active, Failure(422, "invalid_request_error", "not_servable", why))
        else:
            compiled = partial(self._tell_compiled, work)
            self._entrance.submit(generation.sequence, now_us(), compiled)

    def _tell_compiled(self, work: Work, refusal: str | None) -> None:
        """Any thread."""
        self._inbox.put(Prepared(work, refusal))

    def _let_in(self) -> None:
        entered = self._entrance.turn(now_us())
        for sequence in entered.ready:
            self._scheduler.add(sequence)
        for request_id, failure in entered.failed.items():
            self._fail(self._active[request_id], failure)
        for request_id in entered.expired:
            self._finish(self._active[request_id], "timeout")

    def _turn(self) -> None:
        step = self._scheduler.next_step(now_us())
        for request_id in step.expired:
            self._finish(self._active[request_id], "timeout")
        self._note_slots(step)
        if not step.plan.is_empty:
            self._announce(step)
            result = self._steps.run(step.plan, unfinished_requests=len(self._active))
            if self._stop.is_set():
                return
            self._take_result(result)
        self._write()
        self._metrics.running.set(self._scheduler.running_count)
        self._metrics.waiting.set(self._waiting_count())
        self._metrics.memory(self._scheduler.held_blocks, self._engine.info.kv_blocks)

    def _note_slots(self, step: Step) -> None:
        self._metrics.preemptions.inc(len(step.preempted))
        self._metrics.resumptions.inc(len(step.resumed))
        for request_id in step.preempted:
            if (active := self._active.get(request_id)) is not None:
                active.lost_slot()
        for request_id in (*step.admitted, *step.resumed):
            self._active[request_id].got_slot()

    def _announce(self, step: Step) -> None:
        now = now_us()
        for request_id, cached_tokens in step.admitted.items():
            active = self._active[request_id]
            lost = partial(self._lost, active.work)
            self._writer.started(active.generation, now, lost, cached_tokens=cached_tokens)
            self._metrics.cached_prompt_tokens.inc(cached_tokens)
            self._metrics.queue_seconds.observe((now - active.work.pulled_at_us) / 1e6)

    def _take_result(self, result: StepResult) -> None:
        now = now_us()
        outcome = self._scheduler.take(result)
        for request_id, token_id in outcome.tokens.items():
            active = self._active[request_id]
            active.has_prefix = True
            active.generation.add_token(token_id, now, outcome.logprobs.get(request_id))
            self._observe_token(active, now)
            if active.generation.finish_reason is not None:
                self._finish(active, active.generation.finish_reason)
            else:
                self._unwritten[request_id] = active
        for request_id, reason in outcome.failures.items():
            self._fail(self._active[request_id], Failure(500, "server_error", "generation_failed", reason))

    def _write(self) -> None:
        """All tokens of this step, or as many as the log takes; the rest goes with those of the next."""
        for request_id, active in list(self._unwritten.items()):
            if not self._writer.tokens(active.generation, partial(self._lost, active.work)):
                break
            del self._unwritten[request_id]
        self._metrics.unacknowledged.set(self._writer.unacknowledged)

    def _finish(self, active: Active, reason: FinishReason) -> None:
        self._end(active, active.generation.finished(reason, now_us()))
        self._metrics.finished(reason)

    def _fail(self, active: Active, failure: Failure) -> None:
        log.warning("%s failed: %s", active.generation.request_id, failure.message)
        self._end(active, active.generation.failed(failure, now_us()))
        self._metrics.finished("failed")

    def _end(self, active: Active, terminal: GenerationFinished | GenerationFailed) -> None:
        self._forget(active)
        self._statistics.request_finished()
        work = active.work
        self._writer.end(active.generation, terminal, partial(self._done, work), partial(self._lost, work))
        self._metrics.e2e_seconds.observe((terminal.at_us - work.pulled_at_us) / 1e6)

    def _forget(self, active: Active) -> None:
        request_id = active.generation.request_id
        self._scheduler.remove(request_id)
        self._entrance.leave(request_id)
        self._unwritten.pop(request_id, None)
        del self._active[request_id]

    def _lost(self, work: Work, failure: DeliveryFailed) -> None:
        """On the producer's thread: a hole in a request's log. Say no more of it; who reads the order again goes on."""
        if self._stop.is_set():
            return
        log.error("%s is given up here, its log can't be written: %s", work.order.request_id, failure)
        self._inbox.put(Drop(work))

    def _observe_token(self, active: Active, now: int) -> None:
        if active.newest_token_at_us is None:
            self._metrics.time_to_first_token.observe((now - active.work.pulled_at_us) / 1e6)
        else:
            self._metrics.inter_token.observe((now - active.newest_token_at_us) / 1e6)
        active.newest_token_at_us = now


_DEADLY = Failure(
    500,
    "server_error",
    "worker_lost",
    "every worker that tried this request died of it or beside it: it is not tried again",
)
