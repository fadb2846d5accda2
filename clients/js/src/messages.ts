/** What is sent: messages as text. The `event_id` names the response and the kind, so that an answer finds its question. */

import { InvalidCall } from "./errors.js";
import type { CreateRequest } from "./events.js";

/** c: response.create. r: response.resume. x: response.cancel. */
export type MessageKind = "c" | "r" | "x";

/** Past this the gateway closes the connection, and with it every other response's line. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

export const PING = JSON.stringify({ type: "ping" });

/** Throws InvalidCall for a request that is too large to be sent. */
export function createMessage(request: CreateRequest, key: number): string {
  const text = JSON.stringify({ ...request, type: "response.create", event_id: `c${key}` });
  const bytes = text.length * 3 <= MAX_MESSAGE_BYTES ? text.length : new TextEncoder().encode(text).length;
  if (bytes <= MAX_MESSAGE_BYTES) return text;
  throw new InvalidCall("request_too_large", `the request has ${bytes} bytes, at most ${MAX_MESSAGE_BYTES} are taken`);
}

export function resumeMessage(responseId: string | null, after: number, key: number): string {
  const place = { response_id: responseId, starting_after: after };
  return JSON.stringify({ type: "response.resume", ...place, event_id: `r${key}` });
}

export function cancelMessage(responseId: string | null, key: number): string {
  return JSON.stringify({ type: "response.cancel", response_id: responseId, event_id: `x${key}` });
}

/** The key in the `event_id` of an answer, if it answers a message of this kind. */
export function keyIn(eventId: string | null, kind: MessageKind): number | null {
  return eventId?.startsWith(kind) ? Number(eventId.slice(1)) : null;
}
