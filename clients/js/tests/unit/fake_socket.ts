/** A WebSocket without a network: the test is the other side. */

import type { WebSocketLike } from "../../src/socket.js";

export class FakeSocket implements WebSocketLike {
  /** All that were made since `forget`, the newest last. */
  static made: FakeSocket[] = [];
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;
  readonly sent: Record<string, any>[] = [];
  closed: { code: number | undefined; reason: string | undefined } | null = null;

  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {
    FakeSocket.made.push(this);
  }

  static get last(): FakeSocket {
    const socket = FakeSocket.made.at(-1);
    if (socket === undefined) throw new Error("no socket was made");
    return socket;
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(code?: number, reason?: string): void {
    this.closed = { code, reason };
  }

  // --- the other side -----------------------------------------------------------------------------------------------

  open(): void {
    this.onopen?.({});
  }

  say(...messages: readonly object[]): void {
    for (const message of messages) this.onmessage?.({ data: JSON.stringify(message) });
  }

  break(): void {
    this.onclose?.({ code: 1006 });
  }

  /** What was sent besides pings. */
  get asked(): Record<string, any>[] {
    return this.sent.filter((message) => message["type"] !== "ping");
  }
}
