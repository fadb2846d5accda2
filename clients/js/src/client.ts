/** The shell around a session: a socket, a timer, a clock. */

import { AuthenticationFailed, HeadraceError } from "./errors.js";
import type { CreateRequest, RateLimit, ResponseEvent } from "./events.js";
import type { ConnectionState } from "./link.js";
import type { OpenResponse } from "./open_response.js";
import { DEFAULT_POLICY, type Policy } from "./policy.js";
import { ResponseStream } from "./response_stream.js";
import { type Command, Session } from "./session.js";
import { Endpoint, type WebSocketConstructor, type WebSocketLike } from "./socket.js";

export interface ClientOptions {
  /** Of the gateway: `http://127.0.0.1:8080`; also https, ws, wss. */
  url: string;
  apiKey: string;
  /** Where there is no global one (Node 20), or to take another: the constructor of package `ws` will do. */
  WebSocket?: WebSocketConstructor;
  /** Times and bounds, where the defaults don't fit. */
  policy?: Partial<Policy>;
  onConnection?: (state: ConnectionState) => void;
  /** The tenant's quotas after one of its requests was admitted. */
  onRateLimits?: (limits: readonly RateLimit[]) => void;
  /** What went wrong and was dealt with: a ProtocolError whose connection was dropped, a refused cancel. */
  onWarning?: (error: HeadraceError) => void;
}

export interface CallOptions {
  /** When it fires the reader fails with its reason at once, and the server is told to end the response. */
  signal?: AbortSignal;
  /** From the call to the last event, in place of the policy's. It does not end the response at the server. */
  timeoutMs?: number;
}

/**
 * Many responses over one socket, which is opened when it is first needed, made again when it is lost (backoff with
 * full jitter, each response resumed by sequence number), and closed a while after the last response has ended.
 */
export class HeadraceClient {
  private readonly session: Session;
  private readonly endpoint: Endpoint;
  private readonly WebSocket: WebSocketConstructor;
  private readonly streams = new Map<OpenResponse, { stream: ResponseStream; unhook: () => void }>();
  private socket: WebSocketLike | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private timerAt = Infinity;
  private pumping = false;

  /** Throws TypeError for a url or a key that can't be used, and where there is no WebSocket. */
  constructor(private readonly options: ClientOptions) {
    this.endpoint = new Endpoint(options.url, options.apiKey);
    const found = options.WebSocket ?? (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket;
    if (found === undefined) throw new TypeError("there is no global WebSocket here: give one as options.WebSocket");
    this.WebSocket = found;
    this.session = new Session({ ...DEFAULT_POLICY, ...options.policy }, Math.random);
  }

  /**
   * Ask for an answer. Returns at once; what goes wrong later is thrown where the response is read. Throws InvalidCall
   * (closed, too many responses, request too large) and the reason of a signal that has fired already.
   */
  create(request: CreateRequest, options: CallOptions = {}): ResponseStream {
    return this.follow(() => this.session.create(request, now(), options.timeoutMs), options.signal);
  }

  /** Go on behind an event of a response that was begun anywhere, for as long as the log keeps it; -1: from the start. */
  resume(responseId: string, startingAfter = -1, options: CallOptions = {}): ResponseStream {
    return this.follow(() => this.session.resume(responseId, startingAfter, now(), options.timeoutMs), options.signal);
  }

  /** Close the socket for good. What is open fails with ClientClosed, and goes on at the server. */
  close(): void {
    this.session.close(now());
    this.pump();
  }

  private follow(begin: () => OpenResponse, signal: AbortSignal | undefined): ResponseStream {
    signal?.throwIfAborted();
    const response = begin();
    const stream = new ResponseStream(this.owner, response);
    const abort = (): void => this.act(() => this.session.abort(response, asError(signal?.reason), now()));
    signal?.addEventListener("abort", abort, { once: true });
    this.streams.set(response, { stream, unhook: () => signal?.removeEventListener("abort", abort) });
    this.pump();
    return stream;
  }

  private readonly owner = {
    take: (response: OpenResponse): ResponseEvent | undefined => {
      const event = this.session.take(response, now());
      this.pump();
      return event;
    },
    cancel: (response: OpenResponse): void => this.act(() => this.session.cancel(response, now())),
    detach: (response: OpenResponse): void => this.act(() => this.session.detach(response, now())),
  };

  private act(input: () => void): void {
    input();
    this.pump();
  }

  /** Do what the session says, until it says nothing more; then see to the timer. */
  private pump(): void {
    if (this.pumping) return; // a callback of the program has called us: the loop below goes on with it
    this.pumping = true;
    try {
      for (let commands = this.session.commands(); commands.length > 0; commands = this.session.commands()) {
        for (const command of commands) this.obey(command);
      }
    } finally {
      this.pumping = false;
    }
    this.arm();
  }

  private obey(command: Command): void {
    switch (command.kind) {
      case "connect":
        return this.connect();
      case "send":
        return this.socket?.send(command.text);
      case "disconnect":
        return this.disconnect(command.code, command.reason);
      case "changed":
        return this.changed(command.response);
      case "state":
        return undisturbed(() => this.options.onConnection?.(command.state));
      case "rate_limits":
        return undisturbed(() => this.options.onRateLimits?.(command.limits));
      case "warning":
        return undisturbed(() => this.options.onWarning?.(command.error));
    }
  }

  private changed(response: OpenResponse): void {
    const followed = this.streams.get(response);
    followed?.stream.changed();
    if (response.phase !== "over") return;
    followed?.unhook();
    this.streams.delete(response);
  }

  private connect(): void {
    let opened = false;
    let socket: WebSocketLike;
    try {
      socket = new this.WebSocket(this.endpoint.url, this.endpoint.protocols);
    } catch (cause) {
      // For instance an insecure address on a secure page: no later attempt will fare better.
      return this.session.refused(new HeadraceError(`no WebSocket to ${this.endpoint.url} can be made`, { cause }), now());
    }
    this.socket = socket;
    socket.onopen = () => {
      opened = true;
      this.act(() => this.session.opened(now()));
    };
    socket.onmessage = (event: { data: unknown }) => this.act(() => this.session.received(event.data, now()));
    socket.onerror = () => undefined; // a close follows, and says as little
    socket.onclose = () => {
      this.socket = null;
      this.act(() => this.session.lost(now()));
      if (!opened) void this.lookAtKey();
    };
  }

  private async lookAtKey(): Promise<void> {
    if (!(await this.endpoint.refusesKey())) return;
    this.act(() => this.session.refused(new AuthenticationFailed("the gateway does not know this API key"), now()));
  }

  private disconnect(code: number, reason: string): void {
    const socket = this.socket;
    if (socket === null) return;
    this.socket = null;
    socket.onopen = socket.onmessage = socket.onclose = null; // a half-open connection takes long to close: don't wait
    socket.close(code, reason);
  }

  private arm(): void {
    const at = this.session.deadline();
    if (at === Infinity) {
      clearTimeout(this.timer);
      this.timerAt = Infinity;
    } else if (at < this.timerAt) {
      clearTimeout(this.timer);
      this.timerAt = at;
      this.timer = setTimeout(() => this.ring(), Math.min(Math.max(Math.ceil(at - now()), 0), LONGEST_TIMER_MS));
    }
  }

  /** It may have been armed for something that is settled: the session knows. */
  private ring(): void {
    this.timerAt = Infinity;
    this.act(() => this.session.tick(now()));
  }
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

function now(): number {
  return performance.now();
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new HeadraceError("aborted", { cause: reason });
}

/** A callback that throws is the program's affair: it is reported like any uncaught error, and disturbs nothing here. */
function undisturbed(callback: () => void): void {
  try {
    callback();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
