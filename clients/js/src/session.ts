/**
 * The client, sans I/O: calls and messages in, commands out. No socket, no timer, no clock in it; `now` is milliseconds
 * on any steady clock.
 *
 *     create / resume / cancel / abort / detach / take      what the program wants
 *     opened / received / lost / refused                    what happened to the connection
 *     tick                                                  it is `deadline()`
 *     commands()                                            what the shell has to do now, in order
 *
 * Each input marks what is due; `settle` then sends it, when there is a connection that can carry it.
 */

import {
  CancelledUnsent,
  ClientClosed,
  ConnectionLost,
  CreateUncertain,
  type HeadraceError,
  InvalidCall,
  ProtocolError,
  SequenceGap,
  type ServerError,
} from "./errors.js";
import type { CreateRequest, RateLimit, ResponseEvent } from "./events.js";
import { type EventFrame, type Frame, parseFrame } from "./frame.js";
import { type ConnectionState, Link, type Step } from "./link.js";
import { cancelMessage, createMessage, PING, resumeMessage } from "./messages.js";
import type { OpenResponse } from "./open_response.js";
import { OpenResponses } from "./open_responses.js";
import type { Policy } from "./policy.js";

const NORMAL = 1000;
const RECYCLED = 4000;

export type Command =
  | { kind: "connect" }
  | { kind: "send"; text: string }
  | { kind: "disconnect"; code: number; reason: string }
  /** It has more to take, or has come to its end. */
  | { kind: "changed"; response: OpenResponse }
  | { kind: "state"; state: ConnectionState }
  | { kind: "rate_limits"; limits: readonly RateLimit[] }
  | { kind: "warning"; error: HeadraceError };

export class Session {
  private readonly link: Link;
  private readonly responses: OpenResponses;
  private queue: Command[] = [];
  private shown: ConnectionState = "idle";
  private wakeAt = Infinity;
  private due = false; // a message has changed what has to be done
  private recycleDue = false;
  private faults = 0; // connections that ended in nonsense since something new came
  private closed = false;

  constructor(
    private readonly policy: Policy,
    private readonly random: () => number,
  ) {
    this.link = new Link(policy, random);
    this.responses = new OpenResponses(policy);
  }

  /** Throws InvalidCall. */
  create(request: CreateRequest, now: number, timeoutMs = this.policy.timeoutMs): OpenResponse {
    this.checkOpen();
    const response = this.responses.add((key) => createMessage(request, key), -1, now + timeoutMs);
    this.settle(now);
    return response;
  }

  /** Throws InvalidCall. */
  resume(responseId: string, after: number, now: number, timeoutMs = this.policy.timeoutMs): OpenResponse {
    this.checkOpen();
    if (this.responses.withId(responseId) !== null) {
      throw new InvalidCall("response_open", `${responseId} is open in this client already`);
    }
    const response = this.responses.add(null, after, now + timeoutMs);
    this.responses.name(response, responseId);
    response.resumeDue = true;
    this.settle(now);
    return response;
  }

  /** Ask the server to end it. The end comes as an event, after what was on its way. */
  cancel(response: OpenResponse, now: number): void {
    if (response.phase === "over" || response.inbox.final !== null) return;
    if (response.phase === "unsent") {
      this.fail(response, new CancelledUnsent("cancelled before the request was sent", response));
    } else {
      response.cancelWanted = true;
      response.cancelDue = response.phase === "open";
    }
    this.settle(now);
  }

  /** Nobody wants it any more: its reader fails with `reason` now, and the server is told. */
  abort(response: OpenResponse, reason: Error, now: number): void {
    if (response.phase === "over") return;
    response.inbox.discard();
    if (response.phase === "unsent" || response.inbox.final !== null) {
      this.fail(response, reason);
    } else {
      response.error = reason;
      response.abandoned = response.cancelWanted = true;
      response.cancelDue = response.phase === "open";
      this.queue.push({ kind: "changed", response });
    }
    this.settle(now);
  }

  /** Its reader has left. It is followed to its end, and nothing of it is kept. */
  detach(response: OpenResponse, now: number): void {
    response.inbox.discard();
    if (response.inbox.complete) this.forget(response);
    this.settle(now);
  }

  /** The reader's next event, if there is one. */
  take(response: OpenResponse, now: number): ResponseEvent | undefined {
    const event = response.inbox.take();
    if (response.phase !== "over" && response.inbox.wantsReplay) {
      response.replay();
      this.settle(now);
    }
    return event;
  }

  opened(now: number): void {
    this.link.opened(now);
    this.settle(now);
  }

  /** The connection ended by itself. */
  lost(now: number): void {
    this.lineLost(now);
    this.settle(now);
  }

  /** A message came out of the open connection. */
  received(data: unknown, now: number): void {
    try {
      this.hear(parseFrame(data), (data as string).length, now);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.nonsense(error, now);
    }
    if (this.due) this.settle(now);
  }

  /** No connection can be had, and trying again won't help. */
  refused(error: HeadraceError, now: number): void {
    this.failAll(() => error);
    this.leave();
    this.settle(now);
  }

  /** For good. What is open fails with ClientClosed, and goes on at the server. */
  close(now: number): void {
    this.closed = true;
    this.failAll((response) => new ClientClosed("the client was closed", response));
    this.leave();
    this.settle(now);
  }

  tick(now: number): void {
    this.settle(now);
  }

  /** When `tick` has something to do at the latest; Infinity: never. It may be early. */
  deadline(): number {
    return this.wakeAt;
  }

  /** What there is to do since the last call. */
  commands(): Command[] {
    const commands = this.queue;
    this.queue = [];
    return commands;
  }

  private checkOpen(): void {
    if (this.closed) throw new InvalidCall("client_closed", "the client was closed");
  }

  private forget(response: OpenResponse): void {
    this.responses.remove(response);
    this.queue.push({ kind: "changed", response });
    this.due = true;
  }

  private fail(response: OpenResponse, error: Error): void {
    response.error ??= error;
    this.forget(response);
  }

  private failAll(error: (response: OpenResponse) => Error): void {
    for (const response of this.responses) this.fail(response, error(response));
  }

  // --- what the server says -----------------------------------------------------------------------------------------

  private hear(frame: Frame, chars: number, now: number): void {
    this.link.heard(now);
    switch (frame.kind) {
      case "event":
        return this.hearEvent(frame, chars, now);
      case "error":
        return this.hearError(frame.error, frame.eventId, now);
      case "rate_limits":
        this.queue.push({ kind: "rate_limits", limits: frame.limits });
    }
  }

  private hearEvent(frame: EventFrame, chars: number, now: number): void {
    const response = this.responses.withId(frame.responseId) ?? this.bind(frame);
    if (response === null) return; // of one that was given up
    try {
      if (!response.offer(frame, chars, now)) {
        this.due ||= response.resumeDue;
        this.wake(response.deadline(now));
        return;
      }
    } catch (error) {
      if (!(error instanceof SequenceGap)) throw error;
      return this.fail(response, error);
    }
    this.faults = 0;
    this.wake(response.deadline(now));
    this.due ||= response.inbox.final !== null; // the line may not be needed any more
    const over = response.abandoned ? response.inbox.final !== null : response.inbox.complete;
    if (over) this.forget(response);
    else this.queue.push({ kind: "changed", response });
  }

  /** The response whose creation this event acknowledges. */
  private bind(frame: EventFrame): OpenResponse | null {
    const response = frame.event?.type === "response.created" ? this.responses.called(frame.eventId, "c") : null;
    if (response?.phase !== "sent") return null;
    this.responses.name(response, frame.responseId);
    this.due = true;
    return response;
  }

  private hearError(error: ServerError, eventId: string | null, now: number): void {
    const created = this.responses.called(eventId, "c");
    const resumed = this.responses.called(eventId, "r");
    const cancelled = this.responses.called(eventId, "x");
    this.due = true;
    if (created?.phase === "sent") {
      const uncertain = error.code === "log_unavailable"; // it may be in the log all the same
      return this.fail(created, uncertain ? new CreateUncertain(error.message, created, { cause: error }) : error);
    }
    if (resumed !== null) {
      if (!resumed.resumeRefused(error, now, this.random)) this.fail(resumed, error);
    } else if (cancelled === null || !cancelled.cancelRefused(error, now, this.random)) {
      this.queue.push({ kind: "warning", error });
      if (cancelled?.abandoned) this.forget(cancelled);
    }
  }

  private nonsense(error: ProtocolError, now: number): void {
    this.queue.push({ kind: "warning", error });
    this.faults += 1;
    if (this.faults > this.policy.protocolTries) {
      this.faults = 0;
      this.failAll(() => error);
      this.leave();
    } else {
      this.recycle("nonsense", now);
    }
    this.due = true;
  }

  // --- what has to be done ------------------------------------------------------------------------------------------

  private settle(now: number): void {
    for (const response of this.responses) {
      const error = response.overdue(now);
      if (error !== null) this.fail(response, error);
    }
    this.advance(now);
    if (this.link.state === "open") {
      this.flush(now);
      this.advance(now);
    }
    if (this.link.state !== this.shown) {
      this.shown = this.link.state;
      this.queue.push({ kind: "state", state: this.shown });
    }
    this.due = false;
    this.wakeAt = this.link.deadline();
    for (const response of this.responses) this.wake(response.deadline(now));
  }

  private wake(at: number): void {
    if (at < this.wakeAt) this.wakeAt = at;
  }

  private advance(now: number): void {
    for (;;) {
      const step = this.link.step(now, this.responses.needLine());
      if (step === null) return;
      this.obey(step, now);
    }
  }

  private obey(step: Exclude<Step, null>, now: number): void {
    switch (step) {
      case "connect":
        this.queue.push({ kind: "connect" });
        return;
      case "ping":
        this.send(PING);
        return;
      case "recycle":
        return this.recycle("no sign of life", now);
      case "leave":
        return this.leave();
      case "give_up":
        this.failAll((response) => new ConnectionLost(this.hopeless(response), response));
        this.leave();
    }
  }

  private hopeless(response: OpenResponse): string {
    const seconds = Math.round(this.policy.reconnectForMs / 1000);
    const rest = response.phase === "unsent" ? "the request was never sent" : "resume it later from where it stands";
    return `no gateway answered for ${seconds} s; ${rest}`;
  }

  /** Send what is due. A connection that has to be replaced first answers the creations that are on it. */
  private flush(now: number): void {
    let pending = false;
    for (const response of this.responses) {
      if (response.phase === "unsent" && response.request !== null && !this.recycleDue) {
        this.send(response.request);
        response.createSent(now);
      }
      if (response.canResume(now)) this.sendResume(response, now);
      if (response.canCancel(now)) {
        response.cancelDue = false;
        this.send(cancelMessage(response.responseId, response.key));
      }
      pending ||= response.phase === "sent";
    }
    if (this.recycleDue && !pending) this.recycle("too many resumes", now);
  }

  private sendResume(response: OpenResponse, now: number): void {
    if (response.crowded) {
      this.recycleDue = true;
      return;
    }
    response.resumeSent(now);
    this.send(resumeMessage(response.responseId, response.inbox.received, response.key));
  }

  private send(text: string): void {
    this.queue.push({ kind: "send", text });
  }

  private recycle(reason: string, now: number): void {
    this.queue.push({ kind: "disconnect", code: RECYCLED, reason });
    this.lineLost(now);
  }

  private lineLost(now: number): void {
    this.link.lost(now);
    this.recycleDue = false;
    for (const response of this.responses) {
      if (response.phase === "sent") {
        this.fail(response, new CreateUncertain("the connection was lost before the request was acknowledged", response));
      } else {
        response.lineLost();
      }
    }
  }

  private leave(): void {
    this.queue.push({ kind: "disconnect", code: NORMAL, reason: "" });
    this.link.rest();
    this.recycleDue = false;
    for (const response of this.responses) response.lineLost();
  }
}
