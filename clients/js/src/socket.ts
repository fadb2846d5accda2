/** The part of the WebSocket interface that is used: browsers, Node 22 and the packages `ws` and `undici` have it. */

export interface WebSocketLike {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

/** What a browser may put into `Sec-WebSocket-Protocol` (RFC 6455, 4.1: a token of RFC 7230). */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** Where a gateway is, and how to show it who is asking. */
export class Endpoint {
  /** For the WebSocket. */
  readonly url: string;
  /** A browser can't set headers on a WebSocket, so the key is offered as a subprotocol. */
  readonly protocols: string[];
  private readonly models: string;

  /**
   * `url`: of the gateway, as http, https, ws or wss; with or without `/v1/responses`. Throws TypeError for one that
   * is none, and for a key that can't be sent.
   */
  constructor(
    url: string,
    private readonly apiKey: string,
  ) {
    const parsed = new URL(url);
    if (!/^(https?|wss?):$/.test(parsed.protocol)) throw new TypeError(`url must be http, https, ws or wss, got ${url}`);
    if (!TOKEN.test(apiKey)) throw new TypeError("apiKey must be a key like hr_..., without spaces");
    parsed.hash = parsed.search = "";
    const base = parsed.href.replace(/\/+$/, "").replace(/\/v1(\/responses)?$/, "");
    this.url = `${base.replace(/^http/, "ws")}/v1/responses`;
    this.models = `${base.replace(/^ws/, "http")}/v1/models`;
    this.protocols = ["headrace.v1", `headrace.api-key.${apiKey}`];
  }

  /**
   * Is the key the reason that there is no connection? A WebSocket does not say why it failed, so this asks over HTTP;
   * false also when that can't be told.
   */
  async refusesKey(): Promise<boolean> {
    try {
      const reply = await fetch(this.models, {
        headers: { authorization: `Bearer ${this.apiKey}` },
        signal: AbortSignal.timeout(5_000),
      });
      await reply.body?.cancel();
      return reply.status === 401;
    } catch {
      return false; // nobody is there, or a browser keeps the answer of another origin to itself
    }
  }
}
