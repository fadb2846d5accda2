import { describe, expect, it } from "vitest";

import { ProtocolError } from "../../src/errors.js";
import { parseFrame } from "../../src/frame.js";
import { script } from "../gateway_model.js";

const DELTA = {
  type: "response.output_text.delta",
  response_id: "resp_1",
  sequence_number: 5,
  delta: "Hi",
  logprobs: [],
};

function parse(message: object): ReturnType<typeof parseFrame> {
  return parseFrame(JSON.stringify(message));
}

describe("a frame", () => {
  it("of each known type is an event with its place", () => {
    for (const event of script("resp_1", ["a", "b"])) {
      const place = { responseId: "resp_1", number: event["sequence_number"], eventId: null };
      expect(parse(event)).toEqual({ kind: "event", event, ...place });
    }
  });

  it("brings back the event_id of ours that it answers", () => {
    expect(parse({ ...script("resp_1", [])[0], event_id: "c7" })).toMatchObject({ kind: "event", eventId: "c7" });
  });

  it("of a type that is not known keeps its place in the sequence, and has no event", () => {
    expect(parse({ ...DELTA, type: "response.news" })).toMatchObject({ kind: "event", number: 5, event: null });
  });

  it("of a type that is not known and without a place means nothing", () => {
    expect(parse({ type: "server.news" })).toEqual({ kind: "unknown" });
    expect(parse({ type: "constructor" })).toEqual({ kind: "unknown" });
  });

  it("that is an error carries the server's own words", () => {
    const error = { type: "not_found_error", code: "response_not_found", message: "no such response", param: null };
    const frame = parse({ type: "error", status: 404, error, event_id: "r3", response_id: "resp_9" });
    expect(frame).toMatchObject({ kind: "error", eventId: "r3", error: { ...error, status: 404 } });
  });

  it("that tells the quotas carries them", () => {
    const limits = [{ name: "requests", limit: 60, remaining: 59, reset_seconds: 1.5 }];
    expect(parse({ type: "rate_limits.updated", response_id: "resp_1", rate_limits: limits })).toEqual({
      kind: "rate_limits",
      limits,
    });
  });

  it.each([
    ["binary", new ArrayBuffer(2)],
    ["cut off", '{"type": "response.output'],
    ["null", "null"],
    ["a list", "[]"],
    ["without a type", "{}"],
    ["an event without a response", JSON.stringify({ ...DELTA, response_id: undefined })],
    ["an event without a number", JSON.stringify({ ...DELTA, sequence_number: undefined })],
    ["an event with a number below 0", JSON.stringify({ ...DELTA, sequence_number: -1 })],
    ["an event with half a number", JSON.stringify({ ...DELTA, sequence_number: 0.5 })],
    ["an event with a number as text", JSON.stringify({ ...DELTA, sequence_number: "5" })],
    ["an unknown event with half a place", JSON.stringify({ type: "response.news", response_id: "resp_1" })],
    ["a delta without text", JSON.stringify({ ...DELTA, delta: null })],
    ["a delta with log probabilities that are no list", JSON.stringify({ ...DELTA, logprobs: "none" })],
    ["an end without the response", JSON.stringify({ ...DELTA, type: "response.completed" })],
    ["an end with another response", JSON.stringify({ ...DELTA, type: "response.completed", response: { id: "x", status: "completed" } })],
    ["an error that says nothing", JSON.stringify({ type: "error", status: 400 })],
    ["an error without a code", JSON.stringify({ type: "error", status: 400, error: { message: "m", type: "t" } })],
    ["quotas that are none", JSON.stringify({ type: "rate_limits.updated", rate_limits: [7] })],
  ])("that is %s is refused", (_, data) => {
    expect(() => parseFrame(data)).toThrow(ProtocolError);
  });
});
