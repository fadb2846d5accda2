/**
 * When to connect, to ask for a sign of life, to drop, and to give up. Without a socket and without a clock: the
 * session tells what happened and does what `step` says.
 *
 *     idle -> connecting -> open -> waiting -> connecting -> ...
 */

import { backoff, type Policy } from "./policy.js";

/** What a client shows of its connection. */
export type ConnectionState = "idle" | "connecting" | "open" | "waiting";

/** recycle: drop it and wait for the next attempt. leave: nobody needs it. give_up: nobody answers. */
export type Step = "connect" | "ping" | "recycle" | "leave" | "give_up" | null;

export class Link {
  state: ConnectionState = "idle";
  private attempt = 0; // since the server last said something
  private downSince = 0; // since when it has said nothing on any connection; only of use outside `healthy`
  private healthy = false;
  private due = 0; // of the state: retry at, give this connection up at
  private heardAt = 0;
  private pingedAt: number | null = null;
  private unneededSince: number | null = null;

  constructor(
    private readonly policy: Policy,
    private readonly random: () => number,
  ) {}

  opened(now: number): void {
    this.state = "open";
    this.heardAt = now;
    this.pingedAt = null;
    this.unneededSince = null;
  }

  /** The server said something that makes sense. */
  heard(now: number): void {
    this.heardAt = now;
    this.pingedAt = null;
    this.attempt = 0;
    this.healthy = true;
  }

  /** The connection is gone, or was dropped. */
  lost(now: number): void {
    if (this.healthy) this.downSince = now;
    this.healthy = false;
    this.state = "waiting";
    this.due = now + backoff(this.policy, this.attempt, this.random);
    this.attempt += 1;
  }

  /** Nobody needs a connection, or none is to be had. */
  rest(): void {
    this.state = "idle";
    this.healthy = false;
    this.attempt = 0;
  }

  /** What is to be done now; ask again until null. `needed`: there are responses that wait for the line. */
  step(now: number, needed: boolean): Step {
    switch (this.state) {
      case "idle":
        if (!needed) return null;
        this.downSince = now;
        return this.connect(now);
      case "waiting":
        if (!needed) return "leave";
        if (now >= this.downSince + this.policy.reconnectForMs) return "give_up";
        return now >= this.due ? this.connect(now) : null;
      case "connecting":
        if (!needed) return "leave";
        return now >= this.due ? "recycle" : null;
      case "open":
        return this.stepOpen(now, needed);
    }
  }

  /** When `step` has something to say by itself. */
  deadline(): number {
    switch (this.state) {
      case "idle":
        return Infinity;
      case "waiting":
        return Math.min(this.due, this.downSince + this.policy.reconnectForMs);
      case "connecting":
        return this.due;
      case "open": {
        const life = this.pingedAt === null ? this.heardAt + this.policy.idleMs : this.pingedAt + this.policy.pongMs;
        const linger = this.unneededSince === null ? Infinity : this.unneededSince + this.policy.lingerMs;
        return Math.min(life, linger);
      }
    }
  }

  private connect(now: number): Step {
    this.state = "connecting";
    this.due = now + this.policy.connectMs;
    return "connect";
  }

  private stepOpen(now: number, needed: boolean): Step {
    this.unneededSince = needed ? null : (this.unneededSince ?? now);
    if (this.unneededSince !== null && now >= this.unneededSince + this.policy.lingerMs) return "leave";
    if (this.pingedAt !== null) return now >= this.pingedAt + this.policy.pongMs ? "recycle" : null;
    // The first ping goes out at once: a server that opens and says nothing is not one.
    if (this.healthy && now < this.heardAt + this.policy.idleMs) return null;
    this.pingedAt = now;
    return "ping";
  }
}
