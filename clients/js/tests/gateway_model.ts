/** A gateway as docs/websocket.md promises it, in memory: messages in, frames out. What it says is a function of a script. */

type Fields = Record<string, any>;

/** All events of an answer of these pieces, in the server's shapes. */
export function script(responseId: string, pieces: readonly string[], end = "response.completed"): Fields[] {
  const text = pieces.join("");
  const place = { item_id: `msg_${responseId}`, output_index: 0, content_index: 0 };
  const part = { type: "output_text", text, annotations: [], logprobs: [] };
  const item = { id: `msg_${responseId}`, type: "message", role: "assistant", status: "completed", content: [part] };
  const response = (status: string): Fields => ({ response: { id: responseId, status, output: [item] } });
  const events = [
    { type: "response.created", ...response("queued") },
    { type: "response.queued", ...response("queued") },
    { type: "response.in_progress", ...response("in_progress") },
    { type: "response.output_item.added", output_index: 0, item },
    { type: "response.content_part.added", ...place, part },
    ...pieces.map((delta) => ({ type: "response.output_text.delta", ...place, logprobs: [], delta })),
    { type: "response.output_text.done", ...place, text },
    { type: "response.content_part.done", ...place, part },
    { type: "response.output_item.done", output_index: 0, item },
    { type: end, ...response(end.slice("response.".length)) },
  ];
  return events.map((event, number) => ({ ...event, response_id: responseId, sequence_number: number }));
}

interface Cursor {
  id: string;
  next: number;
  eventId: string | null;
}

/** One gateway with one connection at a time. `grow` is the worker: an event is sent once it has been released. */
export class GatewayModel {
  /** What each response says, and how much of that is there yet. */
  readonly log = new Map<string, { events: Fields[]; released: number }>();
  /** `event_id` of each creation that was taken: none twice. */
  readonly created: string[] = [];
  readonly cancelled: string[] = [];
  /** Refuse this many resumes for lack of room. */
  refusals = 0;
  private cursors: Cursor[] = [];
  private replies: string[] = [];

  constructor(private readonly piecesOf: (number: number) => string[]) {}

  /** The connection is another one. */
  reconnected(): void {
    this.cursors = [];
    this.replies = [];
  }

  receive(text: string): void {
    const message = JSON.parse(text) as Fields;
    const eventId = (message["event_id"] as string | undefined) ?? null;
    switch (message["type"]) {
      case "ping":
        this.replies.push(JSON.stringify({ type: "pong", event_id: eventId }));
        return;
      case "response.create":
        return this.create(eventId ?? "");
      case "response.resume":
        if (this.refusals > 0) {
          this.refusals -= 1;
          return this.refuse(503, "overloaded", eventId, message["response_id"]);
        }
        if (!this.log.has(message["response_id"])) {
          return this.refuse(404, "response_not_found", eventId, message["response_id"]);
        }
        this.cursors.push({ id: message["response_id"], next: message["starting_after"] + 1, eventId });
        return;
      case "response.cancel":
        this.cancelled.push(message["response_id"]);
        return;
      default:
        throw new Error(`the client sent ${text}`);
    }
  }

  /** The next frame of any of its streams, `pick` says which; null when all is sent. */
  nextFrame(pick: (count: number) => number): string | null {
    const reply = this.replies.shift();
    if (reply !== undefined) return reply;
    const ready = this.cursors.filter((cursor) => cursor.next < (this.log.get(cursor.id)?.released ?? 0));
    const cursor = ready[pick(ready.length)];
    if (cursor === undefined) return null;
    const event = this.log.get(cursor.id)?.events[cursor.next];
    cursor.next += 1;
    const named = cursor.next === 1 && cursor.eventId !== null ? { ...event, event_id: cursor.eventId } : event;
    return JSON.stringify(named);
  }

  /** Let the next events of this response happen. */
  grow(responseId: string, count = 1): void {
    const response = this.log.get(responseId);
    if (response !== undefined) response.released = Math.min(response.events.length, response.released + count);
  }

  private create(eventId: string): void {
    const id = `resp_${this.log.size + 1}`;
    this.created.push(eventId);
    this.log.set(id, { events: script(id, this.piecesOf(this.log.size)), released: 1 });
    this.cursors.push({ id, next: 0, eventId });
  }

  private refuse(status: number, code: string, eventId: string | null, responseId: string): void {
    const error = { type: "any_error", code, message: `refused: ${code}`, param: null };
    this.replies.push(JSON.stringify({ type: "error", status, error, event_id: eventId, response_id: responseId }));
  }
}
