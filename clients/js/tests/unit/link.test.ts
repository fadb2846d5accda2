import { describe, expect, it } from "vitest";

import { Link, type Step } from "../../src/link.js";
import { backoff, DEFAULT_POLICY } from "../../src/policy.js";

const POLICY = {
  ...DEFAULT_POLICY,
  connectMs: 100,
  idleMs: 50,
  pongMs: 20,
  backoffMs: 10,
  backoffCapMs: 80,
  reconnectForMs: 1000,
  lingerMs: 30,
};

function openLink(): Link {
  const link = new Link(POLICY, () => 1);
  link.step(0, true);
  link.opened(0);
  link.step(0, true);
  link.heard(0);
  return link;
}

/** What it says at its own deadlines, while every connection is lost as soon as it is opened. */
function attempts(link: Link, count: number): number[] {
  const waits = [];
  for (let now = 0; waits.length < count; ) {
    link.lost(now);
    waits.push(link.deadline() - now);
    now = link.deadline();
    expect(link.step(now, true)).toBe("connect");
  }
  return waits;
}

describe("a link", () => {
  it("connects when it is needed and not before", () => {
    const link = new Link(POLICY, () => 1);
    expect([link.step(0, false), link.deadline()]).toEqual([null, Infinity]);
    expect([link.step(0, true), link.state]).toEqual(["connect", "connecting"]);
    expect(link.step(0, true)).toBeNull();
  });

  it("waits twice as long before each attempt, up to its cap, until the server says something", () => {
    const link = new Link(POLICY, () => 1);
    link.step(0, true);
    expect(attempts(link, 5)).toEqual([10, 20, 40, 80, 80]);
    link.opened(500);
    link.step(500, true);
    link.heard(500);
    link.lost(500);
    expect(link.deadline()).toBe(510);
  });

  it("asks for a sign of life at once and then when nothing came for long, and drops a line without one", () => {
    const link = new Link(POLICY, () => 1);
    link.step(0, true);
    link.opened(0);
    expect([link.step(0, true), link.step(0, true), link.deadline()]).toEqual(["ping", null, 20]);
    link.heard(15);
    expect([link.step(15, true), link.deadline()]).toEqual([null, 65]);
    expect([link.step(65, true), link.deadline()]).toEqual(["ping", 85]);
    expect(link.step(85, true)).toBe("recycle");
  });

  it("drops a connection that does not open", () => {
    const link = new Link(POLICY, () => 1);
    link.step(0, true);
    expect([link.deadline(), link.step(99, true), link.step(100, true)]).toEqual([100, null, "recycle"]);
  });

  it("gives up when nobody has answered for so long, however many connections were opened", () => {
    const link = openLink();
    let now = 100;
    let step: Step = null;
    for (; step !== "give_up"; now = link.deadline()) {
      if (link.state !== "waiting") link.lost(now);
      step = link.step(now, true);
      if (step === "connect") link.opened(now);
    }
    expect(now).toBeGreaterThanOrEqual(1100);
  });

  it("stays for a while when nobody needs it, and goes", () => {
    const link = openLink();
    expect([link.step(10, false), link.deadline()]).toEqual([null, 40]);
    expect([link.step(20, true), link.step(25, false), link.step(54, false)]).toEqual([null, null, "ping"]);
    expect(link.step(55, false)).toBe("leave");
  });

  it("does not come back for nobody", () => {
    const link = openLink();
    link.lost(5);
    expect(link.step(5, false)).toBe("leave");
  });
});

describe("backoff", () => {
  it("is drawn from 0 to twice the last bound, at most the cap, also after very many attempts", () => {
    expect([0, 1, 2, 3, 4, 5000].map((attempt) => backoff(POLICY, attempt, () => 1))).toEqual([10, 20, 40, 80, 80, 80]);
    expect(backoff(POLICY, 3, () => 0)).toBe(0);
    expect(backoff(POLICY, 3, () => 0.25)).toBe(20);
  });
});
