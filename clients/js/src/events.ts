/** What is said on the socket: requests, and the server's events as one discriminated union. The contract is docs/websocket.md. */

/** One turn of a conversation. Only text is served. */
export interface InputMessage {
  role: "system" | "developer" | "user" | "assistant";
  content: string | readonly TextPart[];
}

export interface TextPart {
  type: "input_text" | "output_text" | "text";
  text: string;
}

/** A JSON schema as an object. What of it can be followed, the server knows: a schema that can't is refused. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** What the answer is: text, some JSON object, or JSON that obeys a schema. */
export type TextFormat =
  | { type: "text" }
  | { type: "json_object" }
  | { type: "json_schema"; name: string; schema: JsonSchema; strict?: boolean | null; description?: string | null };

/** The parameters of `response.create`. The server refuses those that it does not know, by name. */
export interface CreateRequest {
  /** An alias (`chat`), a pinned version (`chat@v3`) or a LoRA adapter (`tone@v1`). */
  model: string;
  input: string | readonly InputMessage[];
  instructions?: string | null;
  max_output_tokens?: number | null;
  /** 0 to 2; the server's default is 1. */
  temperature?: number | null;
  top_p?: number | null;
  top_k?: number | null;
  /** 0 to 1: tokens less likely than this share of the likeliest one's probability are left out. */
  min_p?: number | null;
  /** Above 0, to 2; 1 changes nothing. */
  repetition_penalty?: number | null;
  /** -2 to 2. */
  presence_penalty?: number | null;
  /** -2 to 2. */
  frequency_penalty?: number | null;
  /** By token id: -100 to 100, added to its logit. At most 300. */
  logit_bias?: Readonly<Record<string, number>> | null;
  /** The same seed gives the same text. */
  seed?: number | null;
  /** Up to 4 strings, each of at most 64 characters. */
  stop?: string | readonly string[] | null;
  text?: { format?: TextFormat | null } | null;
  /** `message.output_text.logprobs` asks for log probabilities. */
  include?: readonly "message.output_text.logprobs"[] | null;
  /** With `include`: how many of the likeliest tokens are told in each place, 0 to 20. */
  top_logprobs?: number | null;
  metadata?: Readonly<Record<string, string>> | null;
  user?: string | null;
  safety_identifier?: string | null;
}

export type ResponseStatus = "queued" | "in_progress" | "completed" | "incomplete" | "cancelled" | "failed";

/** A token that was likely in its place. */
export interface LikelyToken {
  token: string;
  /** Its UTF-8: a token may be half a character. */
  bytes: number[];
  /** Natural logarithm of its probability as the model gave it; -9999 for a probability of zero. */
  logprob: number;
}

/** A token of the output; `top_logprobs`: the likeliest ones in its place, the likeliest first. */
export interface TokenLogprob extends LikelyToken {
  top_logprobs: LikelyToken[];
}

export interface OutputText {
  type: "output_text";
  text: string;
  annotations: unknown[];
  /** One for each token of the text, if they were asked for. */
  logprobs: TokenLogprob[];
}

export interface OutputMessage {
  id: string;
  type: "message";
  role: "assistant";
  status: "in_progress" | "completed" | "incomplete";
  content: OutputText[];
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
}

/** What the server says about a failure; `code` is stable, `message` says what to do. */
export interface ErrorDetail {
  type: string;
  code: string;
  message: string;
  param: string | null;
}

/** The response as it is at one moment: what was asked for, and what has come of it. */
export interface ResponseObject {
  id: string;
  object: "response";
  /** Seconds since 1970. */
  created_at: number;
  completed_at: number | null;
  status: ResponseStatus;
  /** Only of a response that has failed. */
  error: ErrorDetail | null;
  incomplete_details: { reason: string } | null;
  max_output_tokens: number | null;
  metadata: Record<string, string>;
  model: string;
  output: OutputMessage[];
  temperature: number;
  text: { format: TextFormat };
  top_logprobs: number;
  top_p: number;
  /** null until the end, and of a response that was refused. */
  usage: Usage | null;
  user: string | null;
}

/** In every event of a response. `sequence_number` is dense from 0 and the same on every gateway. */
interface OfResponse {
  response_id: string;
  sequence_number: number;
}

interface AtText extends OfResponse {
  item_id: string;
  output_index: number;
  content_index: number;
}

/** The broker has acknowledged the request: from here on it can be resumed. */
export interface ResponseCreated extends OfResponse {
  type: "response.created";
  response: ResponseObject;
}

/** Its quota is reserved. */
export interface ResponseQueued extends OfResponse {
  type: "response.queued";
  response: ResponseObject;
}

/** A worker has begun. */
export interface ResponseInProgress extends OfResponse {
  type: "response.in_progress";
  response: ResponseObject;
}

export interface OutputItemAdded extends OfResponse {
  type: "response.output_item.added";
  output_index: number;
  item: OutputMessage;
}

export interface ContentPartAdded extends AtText {
  type: "response.content_part.added";
  part: OutputText;
}

/** The next piece of text. */
export interface OutputTextDelta extends AtText {
  type: "response.output_text.delta";
  delta: string;
  /** Of the tokens that complete this piece of text, if they were asked for. */
  logprobs: TokenLogprob[];
}

/** The whole text. */
export interface OutputTextDone extends AtText {
  type: "response.output_text.done";
  text: string;
  logprobs: TokenLogprob[];
}

export interface ContentPartDone extends AtText {
  type: "response.content_part.done";
  part: OutputText;
}

export interface OutputItemDone extends OfResponse {
  type: "response.output_item.done";
  output_index: number;
  item: OutputMessage;
}

/** The last event of a response: how it ended (`incomplete`: a token limit). */
export interface ResponseEnded extends OfResponse {
  type: "response.completed" | "response.incomplete" | "response.cancelled" | "response.failed";
  response: ResponseObject;
}

/** Every event of a response that this client knows; `type` tells them apart. Newer ones are counted and passed over. */
export type ResponseEvent =
  | ResponseCreated
  | ResponseQueued
  | ResponseInProgress
  | OutputItemAdded
  | ContentPartAdded
  | OutputTextDelta
  | OutputTextDone
  | ContentPartDone
  | OutputItemDone
  | ResponseEnded;

/** One of the tenant's quotas, as it stands after a request was admitted. */
export interface RateLimit {
  name: string;
  limit: number | null;
  remaining: number | null;
  reset_seconds: number;
}

const ENDS: ReadonlySet<string> = new Set<ResponseEnded["type"]>([
  "response.completed",
  "response.incomplete",
  "response.cancelled",
  "response.failed",
]);

/** Is this the event behind which none comes? */
export function isEnd(event: ResponseEvent): event is ResponseEnded {
  return ENDS.has(event.type);
}
