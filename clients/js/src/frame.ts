/** From what came out of a socket to what it says, or a ProtocolError: nothing behind this file looks at a raw message. */

import { ProtocolError, ServerError } from "./errors.js";
import type { RateLimit, ResponseEvent } from "./events.js";

/** `event` is null for a type that this client does not know: it has its place in the sequence, and no meaning here. */
export interface EventFrame {
  kind: "event";
  responseId: string;
  number: number;
  event: ResponseEvent | null;
  /** Ours, if this answers a message that carried one. */
  eventId: string | null;
}

export type Frame =
  | EventFrame
  | { kind: "error"; error: ServerError; eventId: string | null }
  | { kind: "rate_limits"; limits: RateLimit[] }
  | { kind: "pong" }
  | { kind: "unknown" };

type Fields = Record<string, unknown>;

/** What each known event must carry besides its place; a type that is not here is unknown. */
const REQUIRED: { [Type in ResponseEvent["type"]]: (event: Fields) => boolean } = {
  "response.created": hasResponse,
  "response.queued": hasResponse,
  "response.in_progress": hasResponse,
  "response.output_item.added": (event) => isObject(event["item"]),
  "response.content_part.added": (event) => isObject(event["part"]),
  "response.output_text.delta": (event) => typeof event["delta"] === "string" && Array.isArray(event["logprobs"]),
  "response.output_text.done": (event) => typeof event["text"] === "string",
  "response.content_part.done": (event) => isObject(event["part"]),
  "response.output_item.done": (event) => isObject(event["item"]),
  "response.completed": hasResponse,
  "response.incomplete": hasResponse,
  "response.cancelled": hasResponse,
  "response.failed": hasResponse,
};

/** Throws ProtocolError. */
export function parseFrame(data: unknown): Frame {
  if (typeof data !== "string") throw new ProtocolError("the server sent a binary message");
  const fields = parseObject(data);
  const type = fields["type"];
  if (typeof type !== "string") throw wrong(data, "has no type");
  if (type === "pong") return { kind: "pong" };
  if (type === "error") return parseError(fields, data);
  if (type === "rate_limits.updated") return parseRateLimits(fields, data);
  return parseEvent(fields, type, data);
}

function parseEvent(fields: Fields, type: string, data: string): Frame {
  const responseId = fields["response_id"];
  const number = fields["sequence_number"];
  const required = Object.hasOwn(REQUIRED, type) ? REQUIRED[type as ResponseEvent["type"]] : null;
  if (responseId === undefined && number === undefined && required === null) return { kind: "unknown" };
  if (typeof responseId !== "string" || responseId === "") throw wrong(data, "has no response_id");
  if (!Number.isSafeInteger(number) || (number as number) < 0) throw wrong(data, "has no sequence_number");
  if (required !== null && !required(fields)) throw wrong(data, `is not a whole ${type}`);
  return {
    kind: "event",
    responseId,
    number: number as number,
    event: required === null ? null : (fields as unknown as ResponseEvent),
    eventId: textOrNull(fields["event_id"]),
  };
}

function parseError(fields: Fields, data: string): Frame {
  const { status, error } = fields;
  if (typeof status !== "number" || !isObject(error)) throw wrong(data, "is not a whole error");
  const { type, code, message, param } = error;
  if (typeof type !== "string" || typeof code !== "string" || typeof message !== "string") {
    throw wrong(data, "is not a whole error");
  }
  return {
    kind: "error",
    error: new ServerError(status, { type, code, message, param: textOrNull(param) }),
    eventId: textOrNull(fields["event_id"]),
  };
}

function parseRateLimits(fields: Fields, data: string): Frame {
  const limits = fields["rate_limits"];
  if (!Array.isArray(limits) || !limits.every((row) => isObject(row) && typeof row["name"] === "string")) {
    throw wrong(data, "is not a whole rate_limits.updated");
  }
  return { kind: "rate_limits", limits: limits as RateLimit[] };
}

function parseObject(data: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch {
    throw wrong(data, "is not JSON");
  }
  if (!isObject(value)) throw wrong(data, "is not a JSON object");
  return value;
}

function hasResponse(event: Fields): boolean {
  const response = event["response"];
  return isObject(response) && response["id"] === event["response_id"] && typeof response["status"] === "string";
}

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function textOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function wrong(data: string, what: string): ProtocolError {
  return new ProtocolError(`a message of the server ${what}: ${data.slice(0, 120)}`);
}
