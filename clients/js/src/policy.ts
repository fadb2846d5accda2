/** The numbers that a client lives by. Times are milliseconds. */

export interface Policy {
  /** A connection that is not open by then is tried again. */
  readonly connectMs: number;
  /** An open connection on which nothing came for so long is asked for a sign of life... */
  readonly idleMs: number;
  /** ...which must come within this, or the connection is dropped: it is half-open. */
  readonly pongMs: number;
  /** Waits between attempts to connect are drawn from 0 to `backoffMs` x 2^attempt, at most `backoffCapMs`. */
  readonly backoffMs: number;
  readonly backoffCapMs: number;
  /** How long no gateway may be reached before what is open fails with ConnectionLost. */
  readonly reconnectForMs: number;
  /** How long a sent request may stay without `response.created` or an error. */
  readonly createMs: number;
  /** How long a response may take from its call to its last event; Infinity for no limit. */
  readonly timeoutMs: number;
  /** How long missing events may take to come after they were asked for... */
  readonly gapMs: number;
  /** ...and how often they are asked for without any progress. Refusals to resume or cancel for lack of room, too. */
  readonly tries: number;
  /** Connections that may end in nonsense, one after the other without progress, before it is believed. */
  readonly protocolTries: number;
  /** What one response keeps for a reader that is behind: both are bounds. Past them it is read again from the log. */
  readonly bufferEvents: number;
  readonly bufferChars: number;
  /** How often a response is asked for again on one connection before a new connection takes its place. */
  readonly resumesPerConnection: number;
  /** Responses that may be open at once: what one connection holds at the server. */
  readonly responses: number;
  /** How long a connection without open responses is kept. */
  readonly lingerMs: number;
}

export const DEFAULT_POLICY: Policy = Object.freeze({
  connectMs: 10_000,
  idleMs: 15_000,
  pongMs: 10_000,
  backoffMs: 250,
  backoffCapMs: 10_000,
  reconnectForMs: 120_000,
  createMs: 30_000,
  timeoutMs: 600_000,
  gapMs: 5_000,
  tries: 5,
  protocolTries: 5,
  bufferEvents: 1024,
  bufferChars: 1024 * 1024,
  resumesPerConnection: 8,
  responses: 256,
  lingerMs: 30_000,
});

/** How long to wait before attempt number `attempt` (from 0): exponential, with full jitter, so that clients spread. */
export function backoff(policy: Policy, attempt: number, random: () => number): number {
  return random() * Math.min(policy.backoffCapMs, policy.backoffMs * 2 ** Math.min(attempt, 30));
}
