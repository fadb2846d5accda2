/** A response as a program sees it: events to iterate over, a promise of the end. */

import { InvalidCall, ResponseFailed } from "./errors.js";
import { isEnd, type ResponseEvent, type ResponseObject } from "./events.js";
import type { OpenResponse } from "./open_response.js";

/** What a stream asks of its client. */
export interface StreamOwner {
  take(response: OpenResponse): ResponseEvent | undefined;
  cancel(response: OpenResponse): void;
  detach(response: OpenResponse): void;
}

/**
 * Iterate over it once, either for events (`for await (const event of response)`) or for text (`response.text()`):
 * in order, each once, over as many connections as it takes. A reader that is slow costs bounded memory; one that
 * leaves (`break`) costs none, and `done` still comes.
 */
export class ResponseStream implements AsyncIterable<ResponseEvent> {
  /**
   * The response as its last event tells it, whatever its status; independent of how far the events were read.
   * Rejects with a HeadraceError when the response can't be followed to its end, and with the reason of an abort.
   */
  readonly done: Promise<ResponseObject>;

  private readonly resolve: (final: ResponseObject) => void;
  private readonly reject: (error: Error) => void;
  private waiting: (() => void)[] = [];
  private taken = false;

  /** Made by a client's `create` and `resume`. */
  constructor(
    private readonly owner: StreamOwner,
    private readonly response: OpenResponse,
  ) {
    let resolve: (final: ResponseObject) => void = () => undefined;
    let reject: (error: Error) => void = () => undefined;
    this.done = new Promise((...settle) => ([resolve, reject] = settle));
    this.done.catch(() => undefined); // who iterates meets the error there, and need not look here
    this.resolve = resolve;
    this.reject = reject;
    this.changed();
  }

  /** null until the server has acknowledged the request. */
  get id(): string | null {
    return this.response.responseId;
  }

  /** Of the last event that was read; -1: none. `client.resume(id, lastSequenceNumber)` goes on behind it. */
  get lastSequenceNumber(): number {
    return this.response.inbox.delivered;
  }

  /**
   * Ask the server to end it: the last event is `response.cancelled`, if nothing else ended it first. If the request
   * was not sent yet it never is, and the response fails with CancelledUnsent.
   */
  cancel(): void {
    this.owner.cancel(this.response);
  }

  /** The pieces of text. Throws ResponseFailed where the response has failed: what came is not the answer. */
  async *text(): AsyncGenerator<string, void, undefined> {
    for await (const event of this) {
      if (event.type === "response.output_text.delta") yield event.delta;
      if (event.type === "response.failed") {
        throw new ResponseFailed(event.response, { responseId: this.id, lastSequenceNumber: event.sequence_number });
      }
    }
  }

  /** Throws InvalidCall when the response is being read already. */
  [Symbol.asyncIterator](): AsyncIterator<ResponseEvent, void, undefined> {
    if (this.taken) throw new InvalidCall("already_read", "a response can be read once");
    this.taken = true;
    let over = false;
    const end = { done: true, value: undefined } as const;
    return {
      next: async () => {
        while (!over) {
          const event = this.owner.take(this.response);
          if (event !== undefined) {
            over = isEnd(event);
            return { done: false, value: event };
          }
          if (this.response.error !== null) {
            over = true;
            throw this.response.error;
          }
          await new Promise<void>((resolve) => this.waiting.push(resolve));
        }
        return end;
      },
      return: async () => {
        if (!over) this.owner.detach(this.response);
        over = true;
        this.wake();
        return end;
      },
    };
  }

  /** The client's word that there is more to take, or that it is over. */
  changed(): void {
    const { error, inbox } = this.response;
    if (inbox.final !== null) this.resolve(inbox.final);
    else if (error !== null) this.reject(error);
    this.wake();
  }

  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}
