/** The responses that the session follows, by the key that it gave them and by the id that the server gave them. */

import { InvalidCall } from "./errors.js";
import { Inbox } from "./inbox.js";
import { keyIn, type MessageKind } from "./messages.js";
import { OpenResponse } from "./open_response.js";
import type { Policy } from "./policy.js";

export class OpenResponses implements Iterable<OpenResponse> {
  private readonly byKey = new Map<number, OpenResponse>();
  private readonly byId = new Map<string, OpenResponse>();
  private lastKey = 0;

  constructor(private readonly policy: Policy) {}

  /** `request` makes the text of its `response.create` from its key; null for one that is resumed. Throws InvalidCall. */
  add(request: ((key: number) => string) | null, after: number, endBy: number): OpenResponse {
    if (this.byKey.size >= this.policy.responses) {
      throw new InvalidCall("too_many_responses", `${this.byKey.size} responses are open, the most that a client holds`);
    }
    const key = this.lastKey + 1;
    const inbox = new Inbox(after, this.policy.bufferEvents, this.policy.bufferChars);
    const response = new OpenResponse(key, request === null ? null : request(key), inbox, this.policy, endBy);
    this.lastKey = key;
    this.byKey.set(key, response);
    return response;
  }

  /** The server's id of it is known. */
  name(response: OpenResponse, responseId: string): void {
    response.created(responseId);
    this.byId.set(responseId, response);
  }

  remove(response: OpenResponse): void {
    response.phase = "over";
    this.byKey.delete(response.key);
    if (response.responseId !== null) this.byId.delete(response.responseId);
  }

  withId(responseId: string): OpenResponse | null {
    return this.byId.get(responseId) ?? null;
  }

  /** The response of the message that carried this `event_id`, if it was a message of this kind. */
  called(eventId: string | null, kind: MessageKind): OpenResponse | null {
    const key = keyIn(eventId, kind);
    return key === null ? null : (this.byKey.get(key) ?? null);
  }

  /** Is there one that only a connection can bring further? */
  needLine(): boolean {
    for (const response of this) if (response.needsLine) return true;
    return false;
  }

  /** It may be changed while it is walked. */
  [Symbol.iterator](): Iterator<OpenResponse> {
    return this.byKey.values();
  }
}
