/**
 * The events of one response on their way from the line to its reader: in order, each once, in bounded memory.
 *
 *     delivered <= buffered <= received        sequence numbers; -1 for none
 *
 * A WebSocket can't be paused. When the reader is so far behind that the buffer is full, what comes is counted
 * (`received`) and dropped. Once the reader has caught up, `rewind` says where to read the log again.
 */

import { isEnd, type ResponseEvent, type ResponseObject } from "./events.js";

/** next: it continues the sequence. known: it was there before. ahead: events before it are missing. */
export type Verdict = "next" | "known" | "ahead";

export class Inbox {
  /** Last number of the unbroken sequence that the line has shown. */
  received: number;
  /** Last number that the reader has or will get without asking again. */
  buffered: number;
  /** Last number that the reader has taken. */
  delivered: number;
  /** Highest number that the line has ever shown. */
  highest: number;
  /** The response as its last event tells it, as soon as the line has shown that: the reader may be far behind. */
  final: ResponseObject | null = null;

  private events: ResponseEvent[] = [];
  private sizes: number[] = [];
  private head = 0;
  private chars = 0;
  private last = Infinity; // number of the last event, once it is known
  private discarding = false;

  constructor(
    after: number,
    private readonly maxEvents: number,
    private readonly maxChars: number,
  ) {
    this.received = this.buffered = this.delivered = this.highest = after;
  }

  /** Take what came. `event` null: a type that nobody here knows, so that only its number counts. */
  offer(number: number, event: ResponseEvent | null, chars: number): Verdict {
    if (number > this.last) return "known";
    if (number > this.highest) this.highest = number;
    if (number <= this.received) return "known";
    if (number > this.received + 1) return "ahead";
    if (this.behind || (event !== null && this.full && !this.discarding)) {
      this.received = number; // dropped
    } else {
      this.received = this.buffered = number;
      if (event !== null && !this.discarding) this.keep(event, chars);
    }
    if (event !== null && isEnd(event)) {
      this.final = event.response;
      this.last = number;
    }
    return "next";
  }

  /** The reader's next event, if it is here. */
  take(): ResponseEvent | undefined {
    const event = this.events[this.head];
    if (event === undefined) return undefined;
    this.chars -= this.sizes[this.head] ?? 0;
    this.delivered = event.sequence_number;
    this.head += 1;
    if (this.head === this.events.length || this.head >= this.maxEvents) this.compact();
    return event;
  }

  /** The reader has gone: nothing is kept any more, only followed to the end. */
  discard(): void {
    this.discarding = true;
    this.events = [];
    this.sizes = [];
    this.head = this.chars = 0;
    this.buffered = this.received;
  }

  /** Read again from behind `buffered`, which is returned. */
  rewind(): number {
    this.received = this.buffered;
    return this.buffered;
  }

  get size(): number {
    return this.events.length - this.head;
  }

  /** Events were dropped that the reader still has to get. */
  get behind(): boolean {
    return this.received > this.buffered;
  }

  /** The reader of dropped events has caught up so far that it is time to ask for them. */
  get wantsReplay(): boolean {
    return this.behind && this.size <= this.maxEvents / 4 && this.chars <= this.maxChars / 4;
  }

  /** The line has shown a number that it owes the way to. */
  get lacking(): boolean {
    return this.received < this.highest && this.received < this.last;
  }

  /** Everything up to the last event has been taken or is here to take: the line is not needed any more. */
  get complete(): boolean {
    return this.buffered >= this.last;
  }

  private get full(): boolean {
    return this.size > 0 && (this.size >= this.maxEvents || this.chars >= this.maxChars);
  }

  private keep(event: ResponseEvent, chars: number): void {
    this.events.push(event);
    this.sizes.push(chars);
    this.chars += chars;
  }

  private compact(): void {
    this.events = this.events.slice(this.head);
    this.sizes = this.sizes.slice(this.head);
    this.head = 0;
  }
}
