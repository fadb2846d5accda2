/** One response as the session follows it: how far it has been asked for, what is owed, when it is given up. */

import { ResponseTimeout, CreateUncertain, type Place, SequenceGap, type ServerError } from "./errors.js";
import type { EventFrame } from "./frame.js";
import type { Inbox } from "./inbox.js";
import { backoff, type Policy } from "./policy.js";

/**
 * unsent: its request waits for a connection. sent: no answer yet. open: it has an id. over: the line is done with it,
 * though its reader may have events to take.
 */
export type Phase = "unsent" | "sent" | "open" | "over";

export class OpenResponse implements Place {
  phase: Phase = "unsent";
  responseId: string | null = null;
  /** Why no more events come behind those in the inbox. */
  error: Error | null = null;
  /** `response.resume` has to be sent. */
  resumeDue = false;
  /** `response.cancel` has to be sent; wanted: on every connection, until the end shows. */
  cancelDue = false;
  cancelWanted = false;
  /** Nobody reads it any more: it is followed only until its cancel has shown. */
  abandoned = false;

  private cursors = 0; // streams of it on this connection: one for its creation and for each resume
  private tries = 0; // that failed since something new came: to fill a gap, to resume, to cancel
  private createBy = Infinity;
  private gapBy = Infinity;
  private retryAt = 0;

  constructor(
    readonly key: number,
    /** The text of `response.create`; null for one that is resumed. */
    readonly request: string | null,
    readonly inbox: Inbox,
    private readonly policy: Policy,
    private readonly endBy: number,
  ) {}

  get lastSequenceNumber(): number {
    return this.inbox.buffered;
  }

  /** Does it wait for something that only a connection brings? */
  get needsLine(): boolean {
    return this.phase !== "over" && (this.inbox.final === null || this.resumeDue || this.inbox.lacking);
  }

  /** When `overdue` or a message that is due has to be looked at; Infinity: never. */
  deadline(now: number): number {
    const retry = (this.resumeDue || this.cancelDue) && this.retryAt > now ? this.retryAt : Infinity;
    return Math.min(this.inbox.final === null ? this.endBy : Infinity, this.createBy, this.gapBy, retry);
  }

  /** Does `response.resume` go out now, if there is a connection? */
  canResume(now: number): boolean {
    return this.resumeDue && this.phase === "open" && now >= this.retryAt;
  }

  /** Does `response.cancel`? */
  canCancel(now: number): boolean {
    return this.cancelDue && this.phase === "open" && now >= this.retryAt;
  }

  /** This connection carries so many streams of it that a new one has to take over. */
  get crowded(): boolean {
    return this.cursors >= this.policy.resumesPerConnection;
  }

  createSent(now: number): void {
    this.phase = "sent";
    this.cursors = 1;
    this.createBy = now + this.policy.createMs;
  }

  created(responseId: string): void {
    this.phase = "open";
    this.responseId = responseId;
    this.createBy = Infinity;
    this.cancelDue = this.cancelWanted;
  }

  resumeSent(now: number): void {
    this.resumeDue = false;
    this.cursors += 1;
    this.gapBy = this.inbox.lacking ? now + this.policy.gapMs : Infinity;
  }

  /** The connection that carried it is gone. */
  lineLost(): void {
    this.cursors = 0;
    this.gapBy = Infinity;
    this.resumeDue = this.phase === "open" && this.needsLine;
    this.cancelDue = this.cancelWanted && this.inbox.final === null;
  }

  /** An event came. True if it is new; throws SequenceGap when events stay missing. */
  offer(frame: EventFrame, chars: number, now: number): boolean {
    const verdict = this.inbox.offer(frame.number, frame.event, chars);
    if (verdict === "next") {
      this.tries = 0;
      this.gapBy = this.inbox.lacking ? now + this.policy.gapMs : Infinity;
    } else if (verdict === "ahead" && !this.resumeDue) {
      // Of several streams one may be ahead of the one that brings what is missing: only of a single one it is certain.
      if (this.cursors <= 1) this.askAgain();
      else this.gapBy = Math.min(this.gapBy, now + this.policy.gapMs);
    }
    return verdict === "next";
  }

  /** The reader has caught up with what was dropped before it: ask for it. */
  replay(): void {
    this.inbox.rewind();
    this.resumeDue = true;
  }

  /** Why it has to be given up now, if it has to. Missing events that are overdue are asked for again. */
  overdue(now: number): Error | null {
    if (this.inbox.final === null && now >= this.endBy) {
      return new ResponseTimeout("the response has not ended within its time", this);
    }
    if (now >= this.createBy) return new CreateUncertain("the request was sent and nothing came back", this);
    if (now < this.gapBy) return null;
    this.gapBy = Infinity;
    try {
      this.askAgain();
    } catch (error) {
      return error as SequenceGap;
    }
    return null;
  }

  /** The server refused to resume it. False if that is final. */
  resumeRefused(error: ServerError, now: number, random: () => number): boolean {
    this.cursors -= 1;
    this.resumeDue = this.mayRetry(error, now, random);
    return this.resumeDue;
  }

  /** The server refused to cancel it. False if that is final. */
  cancelRefused(error: ServerError, now: number, random: () => number): boolean {
    this.cancelWanted = this.cancelDue = this.mayRetry(error, now, random);
    return this.cancelDue;
  }

  private mayRetry(error: ServerError, now: number, random: () => number): boolean {
    this.tries += 1;
    this.retryAt = now + backoff(this.policy, this.tries, random);
    return error.status >= 500 && this.tries <= this.policy.tries;
  }

  private askAgain(): void {
    this.tries += 1;
    if (this.tries > this.policy.tries) {
      const missing = `event ${this.inbox.received + 1} of ${this.responseId} is missing`;
      throw new SequenceGap(`${missing}, also after ${this.policy.tries} resumes`, this);
    }
    this.resumeDue = true;
  }
}
