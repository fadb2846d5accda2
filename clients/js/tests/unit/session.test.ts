import { describe, expect, it } from "vitest";

import {
  CancelledUnsent,
  ClientClosed,
  CreateUncertain,
  InvalidCall,
  ProtocolError,
  ResponseTimeout,
  SequenceGap,
  ServerError,
} from "../../src/errors.js";
import type { OpenResponse } from "../../src/open_response.js";
import { DEFAULT_POLICY, type Policy } from "../../src/policy.js";
import { type Command, Session } from "../../src/session.js";
import { script } from "../gateway_model.js";

type Fields = Record<string, any>;
const REQUEST = { model: "m", input: "hello" };

/** A session, a hand on its connection, and everything that it has said. */
class Desk {
  readonly session: Session;
  readonly policy: Policy;
  now = 0;
  heard: Command[] = [];

  constructor(policy: Partial<Policy> = {}) {
    this.policy = { ...DEFAULT_POLICY, ...policy };
    this.session = new Session(this.policy, () => 1);
  }

  create(): OpenResponse {
    return this.session.create(REQUEST, this.now);
  }

  /** A response that has been created, on an open connection. */
  created(id = "resp_1"): OpenResponse {
    const response = this.create();
    if (this.commands("connect").length > 0) this.session.opened(this.now);
    this.say({ ...script(id, [])[0], event_id: `c${response.key}` });
    this.messages();
    return response;
  }

  say(message: Fields | undefined): void {
    this.session.received(JSON.stringify(message), this.now);
  }

  refuse(eventId: string, status: number, code: string): void {
    this.say({ type: "error", status, error: { type: "t", code, message: "no", param: null }, event_id: eventId });
  }

  /** What was sent since the last call, without pings. */
  messages(): Fields[] {
    const sent = this.commands("send").map((command) => JSON.parse((command as { text: string }).text) as Fields);
    return sent.filter((message) => message["type"] !== "ping");
  }

  /** The commands of this kind since the last call; others are kept. */
  commands(kind: Command["kind"]): Command[] {
    this.heard.push(...this.session.commands());
    const found = this.heard.filter((command) => command.kind === kind);
    this.heard = this.heard.filter((command) => command.kind !== kind);
    return found;
  }

  /** Time passes; whatever is due happens, in its order. */
  pass(ms: number): void {
    const until = this.now + ms;
    while (this.session.deadline() <= until) {
      this.now = Math.max(this.now, this.session.deadline());
      this.session.tick(this.now);
    }
    this.now = until;
  }

  /** The connection breaks, and there is the next one. */
  reconnect(): void {
    this.commands("connect");
    this.session.lost(this.now);
    this.pass(this.policy.backoffCapMs);
    expect(this.commands("connect")).toHaveLength(1);
    this.session.opened(this.now);
  }

  numbers(response: OpenResponse): number[] {
    const numbers = [];
    for (let event = this.session.take(response, this.now); event; event = this.session.take(response, this.now)) {
      numbers.push(event.sequence_number);
    }
    return numbers;
  }
}

describe("a creation", () => {
  it("waits for the connection, and is sent once", () => {
    const desk = new Desk();
    desk.create();
    expect([desk.commands("connect").length, desk.messages()]).toEqual([1, []]);
    desk.session.lost(desk.now);
    desk.pass(desk.policy.backoffMs);
    desk.session.opened(desk.now);
    expect(desk.messages()).toEqual([{ ...REQUEST, type: "response.create", event_id: "c1" }]);
    desk.pass(10);
    expect(desk.messages()).toEqual([]);
  });

  it("finds its response among many by the event_id that comes back", () => {
    const desk = new Desk();
    const [first, second] = [desk.create(), desk.create()];
    desk.session.opened(0);
    desk.say({ ...script("resp_b", [])[0], event_id: "c2" });
    desk.say({ ...script("resp_a", [])[0], event_id: "c1" });
    expect([first.responseId, second.responseId]).toEqual(["resp_a", "resp_b"]);
    expect([desk.numbers(first), desk.numbers(second)]).toEqual([[0], [0]]);
  });

  it("that was on its way when the connection was lost is uncertain, and is not sent again", () => {
    const desk = new Desk();
    const response = desk.create();
    desk.session.opened(0);
    desk.messages();
    desk.session.lost(1);
    desk.pass(1000);
    expect(response.error).toBeInstanceOf(CreateUncertain);
    expect(response.error).toMatchObject({ responseId: null, lastSequenceNumber: -1, code: "create_uncertain" });
    expect([desk.messages(), response.phase]).toEqual([[], "over"]);
  });

  it("that nothing answers is uncertain in the end; an answer that comes later is passed over", () => {
    const desk = new Desk({ createMs: 1000 });
    const other = desk.created("resp_0");
    const response = desk.create();
    desk.pass(1000);
    expect(response.error).toBeInstanceOf(CreateUncertain);
    desk.say({ ...script("resp_9", [])[0], event_id: `c${response.key}` });
    desk.say(script("resp_9", [])[1]);
    expect([response.responseId, response.inbox.size, other.error]).toEqual([null, 0, null]);
  });

  it("that the server refuses fails with the server's words", () => {
    const desk = new Desk();
    const response = desk.create();
    desk.session.opened(0);
    desk.refuse("c1", 400, "unknown_parameter");
    expect(response.error).toBeInstanceOf(ServerError);
    expect(response.error).toMatchObject({ status: 400, code: "unknown_parameter", message: "no" });
  });

  it("of which the log did not say whether it has it is uncertain, too", () => {
    const desk = new Desk();
    const response = desk.create();
    desk.session.opened(0);
    desk.refuse("c1", 503, "log_unavailable");
    expect(response.error).toBeInstanceOf(CreateUncertain);
    expect(response.error?.cause).toMatchObject({ code: "log_unavailable" });
  });

  it("is refused here if it is too large, too many, or after the end", () => {
    const desk = new Desk({ responses: 1 });
    const large = { model: "m", input: "é".repeat(2.1 * 1024 * 1024) };
    expect(() => desk.session.create(large, 0)).toThrow(expect.objectContaining({ code: "request_too_large" }));
    desk.create();
    expect(() => desk.create()).toThrow(expect.objectContaining({ code: "too_many_responses" }));
    desk.session.close(0);
    expect(() => desk.create()).toThrow(InvalidCall);
    expect(() => desk.session.resume("resp_1", -1, 0)).toThrow(expect.objectContaining({ code: "client_closed" }));
  });
});

describe("a lost connection", () => {
  it("is made again, and every open response goes on behind what was received", () => {
    const desk = new Desk();
    const [first, second] = [desk.created("resp_a"), desk.created("resp_b")];
    script("resp_a", []).slice(1, 4).forEach((event) => desk.say(event));
    desk.reconnect();
    expect(desk.messages()).toEqual([
      { type: "response.resume", response_id: "resp_a", starting_after: 3, event_id: `r${first.key}` },
      { type: "response.resume", response_id: "resp_b", starting_after: 0, event_id: `r${second.key}` },
    ]);
    script("resp_a", []).slice(3).forEach((event) => desk.say(event));
    expect(desk.numbers(first)).toEqual([...script("resp_a", []).keys()]);
  });

  it("that nobody needs is not made again until somebody does", () => {
    const desk = new Desk();
    const response = desk.created();
    script("resp_1", []).forEach((event) => desk.say(event));
    desk.session.lost(0);
    desk.pass(60_000);
    expect([desk.commands("connect"), desk.session.deadline(), response.phase]).toEqual([[], Infinity, "over"]);
    desk.create();
    expect(desk.commands("connect")).toHaveLength(1);
  });

  it("shows also when it is only half open: no sign of life, so it is dropped", () => {
    const desk = new Desk();
    const response = desk.created();
    desk.pass(desk.policy.idleMs + desk.policy.pongMs - 1);
    expect(desk.commands("disconnect")).toEqual([]);
    desk.pass(1);
    expect(desk.commands("disconnect")).toHaveLength(1);
    expect(response.error).toBeNull();
  });
});

describe("missing events", () => {
  it("are asked for at once, and what the first stream goes on to say is no second gap", () => {
    const desk = new Desk();
    const response = desk.created();
    const events = script("resp_1", ["a", "b"]);
    desk.say(events[2]);
    expect(desk.messages()).toMatchObject([{ type: "response.resume", starting_after: 0 }]);
    [3, 1, 4, 2, 5, 3, 6, 4].forEach((number) => desk.say(events[number]));
    expect([desk.messages(), desk.numbers(response)]).toEqual([[], [0, 1, 2, 3, 4]]);
  });

  it("that don't come are asked for again, and in the end fail with a typed error behind what was in order", () => {
    const desk = new Desk({ gapMs: 1000, tries: 3 });
    const response = desk.created();
    desk.say(script("resp_1", ["a"])[1]);
    desk.say(script("resp_1", ["a"])[3]);
    for (let second = 0; second < 4; second += 1) {
      desk.pass(1000);
      desk.say({ type: "pong" });
    }
    expect(desk.messages().map((message) => message["starting_after"])).toEqual([1, 1, 1]);
    expect(response.error).toBeInstanceOf(SequenceGap);
    expect(response.error).toMatchObject({ responseId: "resp_1", lastSequenceNumber: 1 });
    expect(desk.numbers(response)).toEqual([0, 1]);
  });

  it("are not asked for without end on one connection: a new one takes over, once every creation is answered", () => {
    const desk = new Desk({ gapMs: 1000, tries: 100, resumesPerConnection: 3 });
    desk.created();
    desk.say(script("resp_1", ["a"])[3]);
    desk.pass(1000);
    expect(desk.messages()).toHaveLength(2);
    const creating = desk.create();
    desk.messages();
    desk.pass(1000);
    const waiting = desk.create();
    expect([desk.commands("disconnect"), desk.messages()]).toEqual([[], []]);
    desk.say({ ...script("resp_2", [])[0], event_id: `c${creating.key}` });
    expect(desk.commands("disconnect")).toHaveLength(1);
    expect([creating.error, waiting.phase]).toEqual([null, "unsent"]);
  });
});

describe("a slow reader", () => {
  it("has what it missed read again once it has caught up, and learns the end at once", () => {
    const desk = new Desk({ bufferEvents: 4 });
    const response = desk.created();
    const events = script("resp_1", ["a", "b", "c"]);
    events.slice(1).forEach((event) => desk.say(event));
    expect(response.inbox.final).toMatchObject({ status: "completed" });
    expect([response.inbox.size, desk.messages()]).toEqual([4, []]);
    expect(desk.numbers(response)).toEqual([0, 1, 2, 3]);
    expect(desk.messages()).toMatchObject([{ type: "response.resume", starting_after: 3 }]);
    events.slice(4, 8).forEach((event) => desk.say(event));
    expect(desk.numbers(response)).toEqual([4, 5, 6, 7]);
    expect(desk.commands("disconnect")).toEqual([]);
  });

  it("needs no connection while it has enough to read", () => {
    const desk = new Desk({ bufferEvents: 4, lingerMs: 1000 });
    const response = desk.created();
    script("resp_1", ["a", "b", "c"]).slice(1).forEach((event) => desk.say(event));
    desk.pass(1000);
    expect(desk.commands("disconnect")).toHaveLength(1);
    expect(desk.numbers(response)).toEqual([0, 1, 2, 3]);
    expect(desk.commands("connect")).toHaveLength(1);
    desk.session.opened(desk.now);
    expect(desk.messages()).toMatchObject([{ type: "response.resume", starting_after: 3 }]);
  });

  it("that leaves costs nothing more, and the end still shows", () => {
    const desk = new Desk({ bufferEvents: 4 });
    const response = desk.created();
    desk.session.detach(response, 0);
    script("resp_1", ["a", "b", "c"]).slice(1).forEach((event) => desk.say(event));
    expect([response.inbox.size, response.phase]).toEqual([0, "over"]);
    expect(response.inbox.final).not.toBeNull();
  });
});

describe("a cancel", () => {
  it("is sent when the response has a name, and again on the next connection, until the end shows", () => {
    const desk = new Desk();
    const response = desk.create();
    desk.session.opened(0);
    desk.messages();
    desk.session.cancel(response, 0);
    expect(desk.messages()).toEqual([]);
    desk.say({ ...script("resp_1", [])[0], event_id: "c1" });
    const cancel = { type: "response.cancel", response_id: "resp_1", event_id: "x1" };
    expect(desk.messages()).toEqual([cancel]);
    desk.reconnect();
    expect(desk.messages()[1]).toEqual(cancel);
    script("resp_1", [], "response.cancelled").slice(1).forEach((event) => desk.say(event));
    expect([response.inbox.final?.status, response.error, response.phase]).toEqual(["cancelled", null, "over"]);
  });

  it("of a request that was not sent keeps it from being sent", () => {
    const desk = new Desk();
    const response = desk.create();
    desk.session.cancel(response, 0);
    expect(response.error).toBeInstanceOf(CancelledUnsent);
    expect(desk.commands("disconnect")).toHaveLength(1);
    desk.pass(60_000);
    expect(desk.messages()).toEqual([]);
  });

  it("that the server has no room for is sent again a while later, and not for ever", () => {
    const desk = new Desk({ tries: 2 });
    const response = desk.created();
    desk.session.cancel(response, 0);
    for (let refusal = 0; refusal < 3; refusal += 1) {
      expect(desk.messages()).toHaveLength(1);
      desk.refuse("x1", 503, "overloaded");
      expect(desk.messages()).toEqual([]);
      desk.pass(10_000);
    }
    expect(desk.messages()).toEqual([]);
    expect(desk.commands("warning")).toMatchObject([{ error: { code: "overloaded" } }]);
    expect(response.error).toBeNull();
  });
});

describe("an abort", () => {
  const reason = new Error("not wanted any more");

  it("fails the reader at once, tells the server, and forgets the response when it has ended", () => {
    const desk = new Desk();
    const response = desk.created();
    desk.session.abort(response, reason, 0);
    expect([response.error, desk.numbers(response)]).toEqual([reason, []]);
    expect(desk.messages()).toMatchObject([{ type: "response.cancel", response_id: "resp_1" }]);
    script("resp_1", [], "response.cancelled").slice(1).forEach((event) => desk.say(event));
    expect([response.phase, response.inbox.size, response.error]).toEqual(["over", 0, reason]);
  });

  it("before the request is acknowledged cancels it as soon as it is", () => {
    const desk = new Desk();
    const response = desk.create();
    desk.session.opened(0);
    desk.messages();
    desk.session.abort(response, reason, 0);
    desk.say({ ...script("resp_1", [])[0], event_id: "c1" });
    expect(desk.messages()).toMatchObject([{ type: "response.cancel", response_id: "resp_1" }]);
  });

  it("before the request is sent is all there is to it", () => {
    const desk = new Desk();
    const response = desk.create();
    desk.session.abort(response, reason, 0);
    desk.pass(60_000);
    expect([response.error, response.phase, desk.messages()]).toEqual([reason, "over", []]);
  });
});

describe("a resume", () => {
  it("goes on behind the number that it was given", () => {
    const desk = new Desk();
    const response = desk.session.resume("resp_7", 4, 0);
    desk.session.opened(0);
    expect(desk.messages()).toEqual([
      { type: "response.resume", response_id: "resp_7", starting_after: 4, event_id: "r1" },
    ]);
    script("resp_7", ["a"]).slice(5).forEach((event) => desk.say(event));
    expect(desk.numbers(response)).toEqual([5, 6, 7, 8, 9]);
  });

  it("from the start may be answered with our event_id", () => {
    const desk = new Desk();
    const response = desk.session.resume("resp_7", -1, 0);
    desk.session.opened(0);
    desk.say({ ...script("resp_7", [])[0], event_id: "r1" });
    expect(desk.numbers(response)).toEqual([0]);
  });

  it("of a response that is not there fails; one that finds no room is tried again, and not for ever", () => {
    const desk = new Desk({ tries: 2 });
    const [gone, busy] = [desk.session.resume("resp_7", 4, 0), desk.session.resume("resp_8", 4, 0)];
    desk.session.opened(0);
    desk.refuse("r1", 404, "response_not_found");
    desk.refuse("r2", 503, "overloaded");
    expect([gone.error, busy.error]).toMatchObject([{ code: "response_not_found" }, null]);
    desk.messages();
    desk.pass(10_000);
    expect(desk.messages()).toMatchObject([{ type: "response.resume", response_id: "resp_8" }]);
    desk.refuse("r2", 503, "overloaded");
    desk.pass(10_000);
    desk.refuse("r2", 503, "overloaded");
    expect(busy.error).toMatchObject({ name: "ServerError", code: "overloaded" });
  });

  it("of a response that this client has open is refused", () => {
    const desk = new Desk();
    desk.created("resp_7");
    expect(() => desk.session.resume("resp_7", 0, 0)).toThrow(expect.objectContaining({ code: "response_open" }));
  });
});

describe("nonsense from the server", () => {
  it("costs the connection; the responses are resumed on the next one", () => {
    const desk = new Desk();
    const response = desk.created();
    desk.session.received("{nonsense", 0);
    expect(desk.commands("disconnect")).toMatchObject([{ code: 4000 }]);
    expect(desk.commands("warning")).toMatchObject([{ error: { code: "protocol_error" } }]);
    desk.pass(desk.policy.backoffCapMs);
    desk.session.opened(desk.now);
    expect(desk.messages()).toMatchObject([{ type: "response.resume", starting_after: 0 }]);
    expect(response.error).toBeNull();
  });

  it("that does not end is believed: what is open fails", () => {
    const desk = new Desk({ protocolTries: 2 });
    const response = desk.created();
    for (let time = 0; response.error === null; time += 1) {
      expect(time).toBeLessThan(3);
      desk.session.received("{nonsense", desk.now);
      desk.pass(desk.policy.backoffCapMs);
      if (desk.commands("connect").length > 0) desk.session.opened(desk.now);
    }
    expect(response.error).toBeInstanceOf(ProtocolError);
    expect(desk.session.deadline()).toBe(Infinity);
  });
});

describe("an end", () => {
  it("that does not come in time is a timeout, which leaves the response alone at the server", () => {
    const desk = new Desk({ timeoutMs: 12_000 });
    const response = desk.created();
    desk.pass(12_000);
    expect(response.error).toBeInstanceOf(ResponseTimeout);
    expect(response.error).toMatchObject({ responseId: "resp_1", lastSequenceNumber: 0 });
    expect(desk.messages()).toEqual([]);
  });

  it("of the client fails what is open, which goes on at the server", () => {
    const desk = new Desk();
    const response = desk.created();
    desk.session.close(0);
    expect(response.error).toBeInstanceOf(ClientClosed);
    expect([desk.messages(), desk.commands("disconnect")]).toMatchObject([[], [{ code: 1000 }]]);
    expect(desk.session.deadline()).toBe(Infinity);
  });

  it("of the hope for a connection is told to all who wait", () => {
    const desk = new Desk();
    const [first, second] = [desk.create(), desk.create()];
    const refused = new ServerError(401, { type: "t", code: "c", message: "no", param: null });
    desk.session.refused(refused, 0);
    expect([first.error, second.error]).toEqual([refused, refused]);
  });
});
