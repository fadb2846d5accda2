/** The client against a real gateway that is killed in the middle of an answer: in Chromium and in Node. */

import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";

import { AuthenticationFailed, HeadraceClient, type ResponseEvent, ServerError } from "../../src/index.js";
import { StaticServer } from "./static_server.js";
import { findChromium, System, TIME_FACTOR, whyNoSystem } from "./system.js";

const REQUIRED = process.env["HEADRACE_REQUIRE_JS"] === "1";
const TOKENS = 450; // three seconds of the echo model: time enough to die in
const PAGE_MS = 60_000 * TIME_FACTOR;
const browserPath = findChromium();
const noSystem = whyNoSystem();
const noBrowser = noSystem ?? (browserPath === null ? "there is no Chromium in PATH: install chromium" : null);

describe.runIf(REQUIRED)("what is required here", () => {
  it("is there", () => {
    expect(noBrowser).toBeNull();
  });
});

describe.skipIf(noSystem !== null)(`a gateway that is killed${noSystem === null ? "" : ` (skipped: ${noSystem})`}`, () => {
  let system: System;
  beforeAll(async () => {
    system = await System.start();
  });
  afterAll(async () => {
    await system?.stop();
  });

  function newClient(onConnection?: (state: string) => void): HeadraceClient {
    const options = { url: system.url, apiKey: system.apiKey, WebSocket };
    return new HeadraceClient(onConnection === undefined ? options : { ...options, onConnection });
  }

  describe.skipIf(noBrowser !== null)(`in a page${noBrowser === null ? "" : ` (skipped: ${noBrowser})`}`, () => {
    let server: StaticServer;
    let browser: Browser;
    beforeAll(async () => {
      server = await StaticServer.start();
      browser = await chromium.launch({ executablePath: browserPath ?? "", args: ["--no-sandbox"] });
    });
    afterAll(async () => {
      await browser?.close();
      await server?.stop();
    });

    async function ask(prompt: string): Promise<Page> {
      const page = await browser.newPage();
      page.setDefaultTimeout(PAGE_MS);
      const form = { url: system.url, key: system.apiKey, model: "echo", limit: String(TOKENS), prompt };
      await page.goto(`${server.url}/examples/index.html#${new URLSearchParams(form)}`);
      await page.click("#run");
      return page;
    }

    async function shown(page: Page): Promise<{ answer: string; numbers: string; connections: number }> {
      await page.waitForFunction(() => /completed|incomplete|Error|Lost/.test(document.querySelector("#status")?.textContent ?? ""));
      const text = async (selector: string): Promise<string> => (await page.textContent(selector)) ?? "";
      const connections = Number(await text("#connections"));
      return { answer: await text("#answer"), numbers: await text("#numbers"), connections };
    }

    it("costs the answer nothing: the same text, every sequence number once", async () => {
      const prompt = "The quick brown fox jumps over the lazy dog — año, 日本. ";
      const whole = await shown(await ask(prompt));
      const page = await ask(prompt);
      await page.waitForFunction(() => (document.querySelector("#answer")?.textContent ?? "").length > 60);
      system.killGateway();
      await page.waitForSelector("#connection[data-state=waiting]");
      const interrupted = await shown(page);

      expect(whole.connections).toBe(1);
      expect(interrupted.connections).toBeGreaterThan(1);
      expect(interrupted.answer).toBe(whole.answer);
      // How the text is cut into deltas is a matter of the worker's pace, so two runs may have other numbers.
      const numbers = interrupted.numbers.split(" ").map(Number);
      expect(numbers).toEqual([...numbers.keys()]);
    });
  });

  it("costs many answers on one socket nothing", async () => {
    const states: string[] = [];
    const client = newClient((state) => states.push(state));
    const prompts = Array.from({ length: 12 }, (_, index) => `number ${index}, `);
    const responses = prompts.map((input) => client.create({ model: "echo", input, max_output_tokens: 200 }));
    const reading = responses.map(async (response) => {
      const events: ResponseEvent[] = [];
      for await (const event of response) events.push(event);
      return events;
    });
    await expect.poll(() => responses.every((response) => response.lastSequenceNumber > 10), { timeout: PAGE_MS }).toBe(true);
    system.killGateway();
    const answers = await Promise.all(reading);
    const finals = await Promise.all(responses.map((response) => response.done));
    client.close();

    expect(states.filter((state) => state === "open").length).toBeGreaterThan(1);
    answers.forEach((events, index) => {
      expect(events.map((event) => event.sequence_number)).toEqual([...events.keys()]);
      const text = events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");
      expect(text).toBe(finals[index]?.output[0]?.content[0]?.text);
      expect(text.startsWith(prompts[index]?.repeat(2) ?? "")).toBe(true);
    });
  });

  it("does not keep another client from going on behind any event", async () => {
    const first = newClient();
    const begun = first.create({ model: "echo", input: "abc", max_output_tokens: 100 });
    for await (const event of begun) if (event.sequence_number === 20) break;
    const id = begun.id ?? "";
    first.close();

    const second = newClient();
    const numbers = [];
    for await (const event of second.resume(id, 20)) numbers.push(event.sequence_number);
    const all = [];
    for await (const event of second.resume(id)) all.push(event.sequence_number);
    second.close();
    expect(all).toEqual([...all.keys()]);
    expect(numbers).toEqual(all.slice(21));
  });

  it("ends what is cancelled, and tells what is refused", async () => {
    const client = newClient();
    const cancelled = client.create({ model: "echo", input: "abc", max_output_tokens: 4000 });
    let text = "";
    for await (const delta of cancelled.text()) {
      if (text === "") cancelled.cancel();
      text += delta;
    }
    expect((await cancelled.done).status).toBe("cancelled");

    const unknown = client.create({ model: "no-such-model", input: "abc" });
    expect((await unknown.done).error?.code).toBe("model_not_found");
    await expect(unknown.text().next()).rejects.toMatchObject({ name: "ResponseFailed", code: "model_not_found" });

    const wrong = client.create({ model: "echo", input: "abc", top_p: "much" as unknown as number });
    await expect(wrong.done).rejects.toMatchObject({ name: "ServerError", status: 400, param: "top_p" });
    await expect(wrong.done).rejects.toBeInstanceOf(ServerError);
    client.close();
  });

  it("is not mistaken for one that does not know the key", async () => {
    const client = new HeadraceClient({ url: system.url, apiKey: "hr_unknown", WebSocket });
    await expect(client.create({ model: "echo", input: "abc" }).done).rejects.toBeInstanceOf(AuthenticationFailed);
    client.close();
  });
});
