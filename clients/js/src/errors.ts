/** What can go wrong: one tree, stable codes. A message says what was wrong and what to do. */

import type { ErrorDetail, ResponseObject } from "./events.js";

/** Where a response stands for its reader: `client.resume(responseId, lastSequenceNumber)` goes on from there. */
export interface Place {
  /** null: its creation was never acknowledged. */
  readonly responseId: string | null;
  /** Of the last event that was or will be handed out; -1: none. */
  readonly lastSequenceNumber: number;
}

/** Base of all. */
export class HeadraceError extends Error {
  override readonly name: string = "HeadraceError";
  /** Stable, for programs. */
  readonly code: string = "headrace_error";
}

/** One response can't be followed further. It may go on at the server: only `cancel` ends it there. */
export class ResponseError extends HeadraceError implements Place {
  override readonly name: string = "ResponseError";
  readonly responseId: string | null;
  readonly lastSequenceNumber: number;

  constructor(message: string, place: Place, options?: ErrorOptions) {
    super(message, options);
    this.responseId = place.responseId;
    this.lastSequenceNumber = place.lastSequenceNumber;
  }
}

/** The server has refused what was asked: a bad parameter, an unknown model or response, no room. */
export class ServerError extends HeadraceError {
  override readonly name = "ServerError";
  override readonly code: string;
  /** As in HTTP. */
  readonly status: number;
  readonly type: string;
  /** The field at fault. */
  readonly param: string | null;

  constructor(status: number, detail: ErrorDetail) {
    super(detail.message);
    this.status = status;
    this.type = detail.type;
    this.code = detail.code;
    this.param = detail.param;
  }
}

/** The request was sent and nobody knows whether it was taken. It is not sent again: that could answer it twice. */
export class CreateUncertain extends ResponseError {
  override readonly name = "CreateUncertain";
  override readonly code = "create_uncertain";
}

/** No gateway could be reached for as long as the client was told to try. */
export class ConnectionLost extends ResponseError {
  override readonly name = "ConnectionLost";
  override readonly code = "connection_lost";
}

/** The API key is missing, unknown or revoked. */
export class AuthenticationFailed extends HeadraceError {
  override readonly name = "AuthenticationFailed";
  override readonly code = "authentication_failed";
}

/** The server has said what no Headrace gateway says. The connection was dropped, and its responses resumed. */
export class ProtocolError extends HeadraceError {
  override readonly name = "ProtocolError";
  override readonly code = "protocol_error";
}

/** Events are missing, and asking for them again has not brought them. */
export class SequenceGap extends ResponseError {
  override readonly name = "SequenceGap";
  override readonly code = "sequence_gap";
}

/** The response has not ended within its time. */
export class ResponseTimeout extends ResponseError {
  override readonly name = "ResponseTimeout";
  override readonly code = "response_timeout";
}

/** It was cancelled before the request left this client: the server never saw it. */
export class CancelledUnsent extends ResponseError {
  override readonly name = "CancelledUnsent";
  override readonly code = "cancelled_unsent";
}

/** The client was closed while the response was on its way. */
export class ClientClosed extends ResponseError {
  override readonly name = "ClientClosed";
  override readonly code = "client_closed";
}

/** `text()` met `response.failed`: what it gave so far is not the answer. */
export class ResponseFailed extends ResponseError {
  override readonly name = "ResponseFailed";
  override readonly code: string;
  readonly response: ResponseObject;

  constructor(response: ResponseObject, place: Place) {
    super(response.error?.message ?? "the response has failed", place);
    this.code = response.error?.code ?? "response_failed";
    this.response = response;
  }
}

/** The call can't be done as it was made. Nothing was sent. */
export class InvalidCall extends HeadraceError {
  override readonly name = "InvalidCall";
  override readonly code: "client_closed" | "too_many_responses" | "request_too_large" | "response_open" | "already_read";

  constructor(code: InvalidCall["code"], message: string) {
    super(message);
    this.code = code;
  }
}
