import { describe, expect, it } from "vitest";

import { ConnectionLost, CreateUncertain, HeadraceError, ProtocolError, SequenceGap } from "../../src/errors.js";
import type { ResponseEvent } from "../../src/events.js";
import type { Policy } from "../../src/policy.js";
import { type Faults, NO_FAULTS, type Reading, World } from "../world.js";

const SEEDS = 400;
const SMALL: Partial<Policy> = { bufferEvents: 8, bufferChars: 2_500, resumesPerConnection: 4 };
/** So patient that only what can't be mended ends a response. */
const PATIENT: Partial<Policy> = { ...SMALL, tries: 10_000, protocolTries: 10_000, reconnectForMs: 1e9, timeoutMs: 1e9 };
/** What a line of TCP may do: end, at any moment. And a server that has no room, or makes no sense for a moment. */
const BREAKING: Faults = { ...NO_FAULTS, cut: 0.008, noConnection: 0.3, garbage: 0.004, refuseResume: 0.1 };
/** What no line may do. */
const HOSTILE: Faults = { ...BREAKING, drop: 0.05, repeat: 0.1, swap: 0.1 };

function piecesOf(number: number): string[] {
  return Array.from({ length: (number * 37) % 70 }, (_, index) => `${number}.${index} `);
}

/** Faults for a while, then none, until every reader has its end. */
function live(seed: number, faults: Faults, policy: Partial<Policy>): World {
  const world = new World(seed, faults, policy, piecesOf);
  for (let step = 0; step < 30_000; step += 1) {
    if (world.readings.length < 5 && world.random.chance(0.02)) world.create();
    if (step === 2500) world.calm();
    if (world.readings.length === 5 && world.settled) return world;
    world.step();
  }
  throw new Error(`seed ${seed}: not everything came to an end`);
}

/** What the gateway said of the response that this reader read; of one that was never acknowledged, nothing. */
function said(world: World, { response }: Reading): ResponseEvent[] {
  return (world.gateway.log.get(response.responseId ?? "")?.events ?? []) as ResponseEvent[];
}

function withoutEventId(events: readonly ResponseEvent[]): object[] {
  return events.map((event) => ({ ...event, event_id: undefined }));
}

describe("a session on a line that breaks at any moment", () => {
  it("hands out every event once, in order, to the end, unless nobody can know whether the request arrived", () => {
    const counts = { whole: 0, uncertain: 0, connections: 0 };
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const world = live(seed, BREAKING, PATIENT);
      counts.connections += world.connections;
      for (const reading of world.readings) {
        if (reading.response.error !== null) {
          expect(reading.response.error, `seed ${seed}`).toBeInstanceOf(CreateUncertain);
          expect(reading.events, `seed ${seed}`).toEqual([]);
          counts.uncertain += 1;
          continue;
        }
        expect(withoutEventId(reading.events), `seed ${seed}`).toEqual(withoutEventId(said(world, reading)));
        expect(reading.response.inbox.final, `seed ${seed}`).toEqual(said(world, reading).at(-1)?.["response" as never]);
        counts.whole += 1;
      }
      expect(new Set(world.gateway.created).size, `seed ${seed}: created twice`).toBe(world.gateway.created.length);
    }
    // The line was bad enough to mean something, and most answers came all the same.
    expect(counts.connections).toBeGreaterThan(SEEDS * 5);
    expect(counts.uncertain).toBeGreaterThan(0);
    expect(counts.whole).toBeGreaterThan(SEEDS * 3);
  });

  it("keeps no more of a response than its bound, however slow the reader is", () => {
    const most = Array.from({ length: SEEDS / 4 }, (_, seed) => live(seed + 1, BREAKING, PATIENT).mostBuffered);
    expect(Math.max(...most)).toBe(8);
  });
});

describe("a session that is told nonsense", () => {
  it("never hands out a wrong order: each reader has a beginning of the answer, and the rest or a typed error", () => {
    const ends = new Map<string, number>();
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const world = live(seed, HOSTILE, { ...SMALL, createMs: 2_000, gapMs: 500, tries: 2, protocolTries: 2 });
      for (const reading of world.readings) {
        const expected = said(world, reading).slice(0, reading.events.length);
        expect(withoutEventId(reading.events), `seed ${seed}`).toEqual(withoutEventId(expected));
        const { error } = reading.response;
        if (error !== null) expect(error, `seed ${seed}`).toBeInstanceOf(HeadraceError);
        const end = error === null ? "whole" : error.name;
        ends.set(end, (ends.get(end) ?? 0) + 1);
      }
      expect(world.mostBuffered).toBeLessThanOrEqual(8);
    }
    for (const end of ["whole", CreateUncertain, SequenceGap, ProtocolError]) {
      expect([...ends.keys()]).toContain(typeof end === "string" ? end : end.name);
    }
  });

  it("mends what can be mended: with patience every acknowledged response comes whole", () => {
    const faults = { ...HOSTILE, garbage: 0.002 };
    let whole = 0;
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const world = live(seed, faults, PATIENT);
      for (const reading of world.readings) {
        if (reading.response.responseId === null) continue;
        expect(withoutEventId(reading.events), `seed ${seed}`).toEqual(withoutEventId(said(world, reading)));
        whole += 1;
      }
    }
    expect(whole).toBeGreaterThan(SEEDS * 2);
  });
});

describe("a session without a gateway", () => {
  it("gives up after its time, with an error that says that nothing was sent", () => {
    const world = new World(1, { ...NO_FAULTS, noConnection: 1 }, {}, piecesOf);
    const { response } = world.create();
    for (let step = 0; step < 5_000 && response.error === null; step += 1) world.step();
    expect(response.error).toBeInstanceOf(ConnectionLost);
    expect(response.error?.message).toContain("never sent");
    expect(world.now).toBeGreaterThanOrEqual(world.policy.reconnectForMs);
  });
});
