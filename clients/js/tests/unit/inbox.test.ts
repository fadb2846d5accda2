import { describe, expect, it } from "vitest";

import type { ResponseEvent } from "../../src/events.js";
import { Inbox } from "../../src/inbox.js";
import { script } from "../gateway_model.js";

const EVENTS = script("resp_1", ["a", "b", "c"]) as ResponseEvent[]; // 0 to 11
const LAST = EVENTS.length - 1;

function offer(inbox: Inbox, ...numbers: number[]): string[] {
  return numbers.map((number) => inbox.offer(number, EVENTS[number] ?? null, 100));
}

function drain(inbox: Inbox): number[] {
  const numbers = [];
  for (let event = inbox.take(); event !== undefined; event = inbox.take()) numbers.push(event.sequence_number);
  return numbers;
}

describe("an inbox", () => {
  it("hands out each event once and in order, whatever comes twice or too early", () => {
    const inbox = new Inbox(-1, 100, 1e6);
    expect(offer(inbox, 0, 0, 2, 1, 1, 2)).toEqual(["next", "known", "ahead", "next", "known", "next"]);
    expect(drain(inbox)).toEqual([0, 1, 2]);
    expect(inbox.delivered).toBe(2);
  });

  it("begins behind the event that its reader has seen", () => {
    const inbox = new Inbox(4, 100, 1e6);
    expect(offer(inbox, 3, 4, 5)).toEqual(["known", "known", "next"]);
    expect(drain(inbox)).toEqual([5]);
  });

  it("passes over what it does not know without leaving a hole", () => {
    const inbox = new Inbox(-1, 100, 1e6);
    inbox.offer(0, EVENTS[0] ?? null, 100);
    inbox.offer(1, null, 100);
    expect(offer(inbox, 2)).toEqual(["next"]);
    expect(drain(inbox)).toEqual([0, 2]);
  });

  it("knows what it lacks once the line has shown a later number", () => {
    const inbox = new Inbox(-1, 100, 1e6);
    offer(inbox, 0, 3);
    expect(inbox.lacking).toBe(true);
    offer(inbox, 1, 2, 3);
    expect(inbox.lacking).toBe(false);
  });

  it("keeps at most its bound, counts on, and asks to read again when its reader has caught up", () => {
    const inbox = new Inbox(-1, 4, 1e6);
    offer(inbox, 0, 1, 2, 3, 4, 5);
    expect([inbox.size, inbox.buffered, inbox.received]).toEqual([4, 3, 5]);
    inbox.take();
    offer(inbox, 6); // there would be room, but 4 and 5 are missing before it
    expect([inbox.size, inbox.received, inbox.wantsReplay]).toEqual([3, 6, false]);
    inbox.take();
    inbox.take();
    expect(inbox.wantsReplay).toBe(true);
    expect(inbox.rewind()).toBe(3);
    expect([inbox.wantsReplay, inbox.lacking]).toEqual([false, true]);
    expect(offer(inbox, 7, 4, 5, 6, 7)).toEqual(["ahead", "next", "next", "next", "next"]);
    expect(drain(inbox)).toEqual([3, 4, 5, 6]); // 7 was over the bound again
  });

  it("is bounded in characters too, but never refuses a single event", () => {
    const inbox = new Inbox(-1, 100, 150);
    inbox.offer(0, EVENTS[0] ?? null, 1e6);
    offer(inbox, 1);
    expect([inbox.size, inbox.behind]).toEqual([1, true]);
  });

  it("tells the end as soon as the line has shown it, also to a reader who is far behind", () => {
    const inbox = new Inbox(-1, 2, 1e6);
    offer(inbox, ...EVENTS.keys());
    expect(inbox.final).toMatchObject({ id: "resp_1", status: "completed" });
    expect(inbox.complete).toBe(false);
    for (let got = drain(inbox); got.length > 0; got = drain(inbox)) {
      inbox.rewind();
      offer(inbox, ...EVENTS.keys());
    }
    expect([inbox.delivered, inbox.complete]).toEqual([LAST, true]);
  });

  it("takes nothing behind the last event", () => {
    const inbox = new Inbox(-1, 100, 1e6);
    offer(inbox, ...EVENTS.keys());
    expect(inbox.offer(LAST + 1, EVENTS[5] ?? null, 10)).toBe("known");
    expect(inbox.lacking).toBe(false);
  });

  it("without a reader keeps nothing, and still comes to the end", () => {
    const inbox = new Inbox(-1, 2, 1e6);
    offer(inbox, 0, 1, 2);
    inbox.discard();
    offer(inbox, ...EVENTS.keys());
    expect([inbox.size, inbox.complete, inbox.take()]).toEqual([0, true, undefined]);
    expect(inbox.final).not.toBeNull();
  });
});
