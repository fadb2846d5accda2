import { describe, expect, it } from "vitest";

import { Endpoint } from "../../src/socket.js";

describe("an endpoint", () => {
  it.each([
    ["http://gateway:8080", "ws://gateway:8080/v1/responses"],
    ["https://gateway/", "wss://gateway/v1/responses"],
    ["wss://gateway/v1", "wss://gateway/v1/responses"],
    ["ws://gateway/v1/responses", "ws://gateway/v1/responses"],
    ["https://gateway/models/headrace/", "wss://gateway/models/headrace/v1/responses"],
    ["http://gateway/?api_key=no#key=no", "ws://gateway/v1/responses"],
  ])("of %s is %s", (given, url) => {
    expect(new Endpoint(given, "hr_key").url).toBe(url);
  });

  it.each(["gateway:8080", "ftp://gateway", "", "/v1/responses"])("can't be %j", (url) => {
    expect(() => new Endpoint(url, "hr_key")).toThrow(TypeError);
  });

  it.each(["", "two words", "a,b", "schlüssel"])("can't be reached with the key %j, which no browser would send", (key) => {
    expect(() => new Endpoint("http://gateway", key)).toThrow("apiKey");
  });
});
