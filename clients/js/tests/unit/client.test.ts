import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import {
  AuthenticationFailed,
  ClientClosed,
  type ClientOptions,
  CreateUncertain,
  DEFAULT_POLICY,
  HeadraceClient,
  InvalidCall,
  ResponseFailed,
  type ResponseStream,
} from "../../src/index.js";
import { script } from "../gateway_model.js";
import { FakeSocket } from "./fake_socket.js";

const REQUEST = { model: "m", input: "hello" };

beforeEach(() => {
  FakeSocket.made = [];
  vi.useFakeTimers();
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("nobody is there")));
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function newClient(options: Partial<ClientOptions> = {}): HeadraceClient {
  return new HeadraceClient({ url: "http://gateway:8080", apiKey: "hr_key", WebSocket: FakeSocket, ...options });
}

/** A response that the other side has begun to answer with these pieces; its events. */
function begin(client: HeadraceClient, pieces: string[]): { response: ResponseStream; events: Record<string, any>[] } {
  const response = client.create(REQUEST);
  FakeSocket.last.open();
  const events = script("resp_1", pieces);
  FakeSocket.last.say({ ...events[0], event_id: "c1" });
  return { response, events };
}

async function read(response: ResponseStream): Promise<string> {
  let text = "";
  for await (const delta of response.text()) text += delta;
  return text;
}

describe("a client", () => {
  it("opens its socket when it is needed, with the key as a subprotocol", () => {
    const client = newClient();
    expect(FakeSocket.made).toEqual([]);
    client.create(REQUEST);
    client.create(REQUEST);
    expect(FakeSocket.made).toHaveLength(1);
    expect(FakeSocket.last.url).toBe("ws://gateway:8080/v1/responses");
    expect(FakeSocket.last.protocols).toEqual(["headrace.v1", "headrace.api-key.hr_key"]);
  });

  it("says why it can't work where there is no WebSocket", () => {
    vi.stubGlobal("WebSocket", undefined);
    expect(() => new HeadraceClient({ url: "http://gateway", apiKey: "hr_key" })).toThrow("options.WebSocket");
  });

  it("takes the global WebSocket where there is one", () => {
    vi.stubGlobal("WebSocket", FakeSocket);
    new HeadraceClient({ url: "http://gateway", apiKey: "hr_key" }).create(REQUEST);
    expect(FakeSocket.made).toHaveLength(1);
  });

  it("streams text over a connection that breaks, and promises the whole", async () => {
    const client = newClient();
    const { response, events } = begin(client, ["a", "b", "c"]);
    const text = read(response);
    FakeSocket.last.say(...events.slice(1, 7));
    FakeSocket.last.break();
    await vi.advanceTimersByTimeAsync(DEFAULT_POLICY.backoffMs + 1);
    expect(FakeSocket.made).toHaveLength(2);
    FakeSocket.last.open();
    expect(FakeSocket.last.asked).toMatchObject([{ type: "response.resume", starting_after: 6 }]);
    FakeSocket.last.say(...events.slice(5));
    expect(await text).toBe("abc");
    expect(await response.done).toMatchObject({ id: "resp_1", status: "completed" });
    expect([response.id, response.lastSequenceNumber]).toEqual(["resp_1", events.length - 1]);
  });

  it("closes its socket a while after the last response", async () => {
    const client = newClient({ policy: { lingerMs: 500 } });
    const { response, events } = begin(client, ["a"]);
    FakeSocket.last.say(...events.slice(1));
    await response.done;
    await vi.advanceTimersByTimeAsync(499);
    expect(FakeSocket.last.closed).toBeNull();
    await vi.advanceTimersByTimeAsync(2);
    expect(FakeSocket.last.closed).toMatchObject({ code: 1000 });
    expect(vi.getTimerCount()).toBe(0);
  });

  it("is deaf to a socket that it has dropped", async () => {
    const client = newClient({ policy: { idleMs: 100, pongMs: 100 } });
    const { response } = begin(client, ["a"]);
    const halfOpen = FakeSocket.last;
    await vi.advanceTimersByTimeAsync(1000);
    expect(FakeSocket.made).toHaveLength(2);
    halfOpen.say(script("resp_1", ["a"])[1] ?? {});
    halfOpen.break();
    FakeSocket.last.open();
    expect(FakeSocket.last.asked).toMatchObject([{ type: "response.resume", response_id: response.id, starting_after: 0 }]);
    client.close();
  });

  it("tells apart a wrong key from a gateway that is away", async () => {
    const asked: unknown[] = [];
    vi.stubGlobal("fetch", (url: string, options: { headers: object }) => {
      asked.push([url, options.headers]);
      return Promise.resolve(new Response(null, { status: asked.length === 1 ? 503 : 401 }));
    });
    const { done } = newClient().create(REQUEST);
    FakeSocket.last.break();
    await vi.advanceTimersByTimeAsync(DEFAULT_POLICY.backoffMs + 1);
    FakeSocket.last.break();
    await expect(done).rejects.toBeInstanceOf(AuthenticationFailed);
    expect(asked).toHaveLength(2);
    expect(asked[0]).toEqual(["http://gateway:8080/v1/models", { authorization: "Bearer hr_key" }]);
  });

  it("says so at once when no socket can be made at all", async () => {
    const Refusing = class {
      constructor() {
        throw new DOMException("an insecure WebSocket on a secure page", "SecurityError");
      }
    } as unknown as typeof FakeSocket;
    const { done } = newClient({ WebSocket: Refusing }).create(REQUEST);
    await expect(done).rejects.toMatchObject({ message: expect.stringContaining("ws://gateway:8080"), cause: { name: "SecurityError" } });
  });

  it("shows its connection, the quotas and what went wrong; a callback that throws disturbs nothing", async () => {
    const shown: unknown[] = [];
    const thrown: unknown[] = [];
    vi.stubGlobal("queueMicrotask", (task: () => void) => {
      try {
        task();
      } catch (error) {
        thrown.push(error);
      }
    });
    const client = newClient({
      onConnection: (state) => {
        shown.push(state);
        throw new Error("of the program");
      },
      onRateLimits: (limits) => shown.push(limits),
      onWarning: (error) => shown.push(error.code),
    });
    const limits = [{ name: "requests", limit: 9, remaining: 8, reset_seconds: 1 }];
    const { response } = begin(client, []);
    FakeSocket.last.say({ type: "rate_limits.updated", response_id: "resp_1", rate_limits: limits });
    FakeSocket.last.onmessage?.({ data: "nonsense" });
    expect(shown).toEqual(["connecting", "open", limits, "protocol_error", "waiting"]);
    expect(thrown).toHaveLength(3);
    expect(response.id).toBe("resp_1");
    client.close();
  });

  it("fails what is open when it is closed", async () => {
    const client = newClient();
    const { response } = begin(client, []);
    client.close();
    await expect(response.done).rejects.toBeInstanceOf(ClientClosed);
    expect(() => client.create(REQUEST)).toThrow(InvalidCall);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("a response", () => {
  it("hands out events before the error that ends it", async () => {
    const client = newClient();
    const { response, events } = begin(client, []);
    FakeSocket.last.say(events[1] ?? {});
    client.close();
    const reader = response[Symbol.asyncIterator]();
    expect((await reader.next()).value).toMatchObject({ sequence_number: 0 });
    expect((await reader.next()).value).toMatchObject({ sequence_number: 1 });
    await expect(reader.next()).rejects.toBeInstanceOf(ClientClosed);
    expect(await reader.next()).toEqual({ done: true, value: undefined });
  });

  it("whose creation is uncertain says so to its reader", async () => {
    const response = newClient().create(REQUEST);
    const reading = read(response);
    FakeSocket.last.open();
    FakeSocket.last.break();
    await expect(reading).rejects.toBeInstanceOf(CreateUncertain);
    expect(response.id).toBeNull();
  });

  it("that fails at the server is an event, a final response, and an error where only the text is read", async () => {
    const { response } = begin(newClient(), []);
    const events = script("resp_1", ["a"], "response.failed");
    const reading = read(response);
    FakeSocket.last.say(...events.slice(1));
    await expect(reading).rejects.toBeInstanceOf(ResponseFailed);
    expect(await response.done).toMatchObject({ status: "failed" });
  });

  it("can be left in the middle, and read once", async () => {
    const { response, events } = begin(newClient({ policy: { bufferEvents: 2 } }), ["a", "b", "c"]);
    FakeSocket.last.say(events[1] ?? {});
    for await (const event of response) if (event.sequence_number === 1) break;
    FakeSocket.last.say(...events.slice(2));
    expect(await response.done).toMatchObject({ status: "completed" });
    expect(() => response[Symbol.asyncIterator]()).toThrow(expect.objectContaining({ code: "already_read" }));
    expect(FakeSocket.last.asked).toHaveLength(1);
  });

  it("that is left while somebody waits for it lets him go", async () => {
    const reader = begin(newClient(), []).response[Symbol.asyncIterator]();
    await reader.next();
    const waiting = reader.next();
    await reader.return?.();
    expect(await waiting).toEqual({ done: true, value: undefined });
  });

  it("is cancelled by name", async () => {
    const { response, events } = begin(newClient(), []);
    response.cancel();
    expect(FakeSocket.last.asked.at(-1)).toMatchObject({ type: "response.cancel", response_id: "resp_1" });
    FakeSocket.last.say(...script("resp_1", [], "response.cancelled").slice(1));
    expect([(await response.done).status, events.length]).toEqual(["cancelled", 9]);
  });

  it("ends with the reason of its signal, and is cancelled at the server", async () => {
    const client = newClient();
    const stop = new AbortController();
    const response = client.create(REQUEST, { signal: stop.signal });
    FakeSocket.last.open();
    FakeSocket.last.say({ ...script("resp_1", [])[0], event_id: "c1" });
    stop.abort();
    await expect(read(response)).rejects.toMatchObject({ name: "AbortError" });
    await expect(response.done).rejects.toBe(stop.signal.reason);
    expect(FakeSocket.last.asked.at(-1)).toMatchObject({ type: "response.cancel" });
    expect(() => client.create(REQUEST, { signal: stop.signal })).toThrow(expect.objectContaining({ name: "AbortError" }));
  });

  it("lets go of its signal when it is over", async () => {
    const stop = new AbortController();
    const removed = vi.spyOn(stop.signal, "removeEventListener");
    const response = newClient().create(REQUEST, { signal: stop.signal });
    FakeSocket.last.open();
    FakeSocket.last.say({ ...script("resp_1", [])[0], event_id: "c1" }, ...script("resp_1", []).slice(1));
    await response.done;
    expect(removed).toHaveBeenCalledWith("abort", expect.any(Function));
  });

  it("takes a reason that is no error, too", async () => {
    const stop = new AbortController();
    const response = newClient().create(REQUEST, { signal: stop.signal });
    stop.abort("enough");
    await expect(response.done).rejects.toMatchObject({ name: "HeadraceError", cause: "enough" });
  });

  it("has its own time, if it is given one", async () => {
    const response = newClient().create(REQUEST, { timeoutMs: 50 });
    await vi.advanceTimersByTimeAsync(50);
    await expect(response.done).rejects.toMatchObject({ name: "ResponseTimeout" });
  });
});
