/** A session between a model gateway and readers, on a line that may do anything, in a time that a seed decides. */

import { isEnd, type ResponseEvent } from "../src/events.js";
import type { OpenResponse } from "../src/open_response.js";
import { DEFAULT_POLICY, type Policy } from "../src/policy.js";
import { Session } from "../src/session.js";
import { GatewayModel } from "./gateway_model.js";
import { Random } from "./random.js";

/** How likely each fault is, at each step or for each frame. */
export interface Faults {
  cut: number;
  noConnection: number;
  garbage: number;
  drop: number;
  repeat: number;
  swap: number;
  refuseResume: number;
}

export const NO_FAULTS: Faults = { cut: 0, noConnection: 0, garbage: 0, drop: 0, repeat: 0, swap: 0, refuseResume: 0 };

const GARBAGE = [
  "",
  "{",
  "null",
  "[]",
  "42",
  '{"type": 7}',
  '{"type": "error"}',
  '{"type": "response.output_text.delta", "response_id": "resp_1", "sequence_number": 3}',
  '{"type": "response.output_text.delta", "response_id": "resp_1", "sequence_number": -1, "delta": "no"}',
  '{"type": "response.output_text.delta", "response_id": "resp_1", "sequence_number": 1.5, "delta": "no"}',
  '{"type": "response.output_text.delta", "sequence_number": 6, "delta": "no"}',
  '{"type": "response.completed", "response_id": "resp_1", "sequence_number": 2}',
  new ArrayBuffer(8),
];
const UNKNOWN = ['{"type": "response.reasoning.hint"}', '{"type": "server.news", "sequence_number_of": 3}'];

/** What a reader has got of one response. */
export interface Reading {
  response: OpenResponse;
  events: ResponseEvent[];
}

export class World {
  readonly random: Random;
  readonly gateway: GatewayModel;
  readonly session: Session;
  readonly readings: Reading[] = [];
  readonly warnings: Error[] = [];
  readonly policy: Policy;
  now = 0;
  mostBuffered = 0;
  connections = 0;
  private line: "none" | "opening" | "open" = "none";
  private sent: string[] = [];
  private held: string[] = [];

  constructor(
    seed: number,
    private faults: Faults,
    policy: Partial<Policy>,
    piecesOf: (number: number) => string[],
  ) {
    this.random = new Random(seed);
    this.policy = { ...DEFAULT_POLICY, ...policy };
    this.gateway = new GatewayModel(piecesOf);
    this.session = new Session(this.policy, this.random.number);
  }

  create(): Reading {
    const reading = { response: this.session.create({ model: "m", input: "i" }, this.now), events: [] };
    this.readings.push(reading);
    this.obey();
    return reading;
  }

  /** From now on nothing goes wrong any more. */
  calm(): void {
    this.faults = NO_FAULTS;
  }

  get settled(): boolean {
    return this.readings.every(({ response, events }) => {
      const last = events.at(-1);
      return (last !== undefined && isEnd(last)) || (response.error !== null && response.inbox.size === 0);
    });
  }

  /** One thing happens, or one thing goes wrong. */
  step(): void {
    const { random, faults } = this;
    if (this.line !== "none" && random.chance(faults.cut)) this.cut();
    else this.advance(random.below(12));
    this.obey();
    for (const { response } of this.readings) this.mostBuffered = Math.max(this.mostBuffered, response.inbox.size);
  }

  private advance(what: number): void {
    switch (what) {
      case 0:
        this.now += this.random.number() * 50;
        if (this.now >= this.session.deadline()) this.session.tick(this.now);
        return;
      case 1:
        return this.sleep();
      case 2:
        return this.open();
      case 3:
      case 4:
        return this.work();
      case 5:
      case 6:
        return this.read();
      case 7:
        return this.deliverToGateway();
      default:
        return this.deliverToSession();
    }
  }

  /** Nothing at all until something is due, if nothing is on its way. */
  private sleep(): void {
    if (this.sent.length > 0 || this.line === "opening" || this.session.deadline() === Infinity) return;
    this.now = Math.max(this.now, this.session.deadline());
    this.session.tick(this.now);
  }

  private open(): void {
    if (this.line !== "opening") return;
    if (this.random.chance(this.faults.noConnection)) return this.cut();
    this.line = "open";
    this.connections += 1;
    this.gateway.reconnected();
    this.session.opened(this.now);
  }

  private work(): void {
    for (const id of this.gateway.log.keys()) this.gateway.grow(id, this.random.below(4));
  }

  private read(): void {
    for (const reading of this.readings) {
      if (this.random.chance(0.8)) continue;
      for (let count = this.random.below(6); count > 0; count -= 1) {
        const event = this.session.take(reading.response, this.now);
        if (event !== undefined) reading.events.push(event);
      }
    }
  }

  private deliverToGateway(): void {
    const text = this.sent.shift();
    if (text === undefined || this.line !== "open") return;
    if (this.random.chance(this.faults.refuseResume)) this.gateway.refusals += 1;
    this.gateway.receive(text);
  }

  private deliverToSession(): void {
    if (this.line !== "open") return;
    const { random, faults } = this;
    if (random.chance(faults.garbage)) return this.hear(random.pick(GARBAGE));
    if (random.chance(faults.garbage)) this.hear(random.pick(UNKNOWN));
    const frame = this.held.shift() ?? this.gateway.nextFrame(random.below);
    if (frame === null || random.chance(faults.drop)) return;
    if (random.chance(faults.swap)) {
      this.held.push(frame);
      return;
    }
    this.hear(frame);
    if (random.chance(faults.repeat)) this.hear(frame);
  }

  private hear(data: unknown): void {
    if (this.line !== "open") return;
    this.session.received(data, this.now);
    this.obey();
  }

  private cut(): void {
    this.drop();
    this.session.lost(this.now);
  }

  private drop(): void {
    this.line = "none";
    this.sent = [];
    this.held = [];
  }

  private obey(): void {
    for (const command of this.session.commands()) {
      if (command.kind === "connect") this.line = "opening";
      if (command.kind === "disconnect") this.drop();
      if (command.kind === "send" && this.line === "open") this.sent.push(command.text);
      if (command.kind === "warning") this.warnings.push(command.error);
    }
  }
}
