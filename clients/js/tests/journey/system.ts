/** A real Headrace beside the test: `headrace up` with the echo model, whose gateway can be killed. */

import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import { tmpdir } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const ROOT = resolve(import.meta.dirname, "../../../..");
const PYTHON = process.env["HEADRACE_PYTHON"] ?? join(ROOT, ".venv/bin/python");
const TOKENS_PER_SECOND = "150";
/** As in the Python tests: it stretches every limit on a slow machine. */
export const TIME_FACTOR = Number(process.env["HEADRACE_TEST_TIME_FACTOR"] ?? 1);
const START_MS = 90_000 * TIME_FACTOR;

/** Why there can't be a system here; null: there can. */
export function whyNoSystem(): string | null {
  if (!existsSync(PYTHON)) return `there is no ${PYTHON}: run make setup`;
  if (!existsSync("/proc/self/task")) return "the gateway's process is found in /proc, which is not there";
  return null;
}

/** The browser to test in; null: there is none. */
export function findChromium(): string | null {
  const names = ["chromium", "chromium-browser", "google-chrome"];
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  const paths = folders.flatMap((folder) => names.map((name) => join(folder, name)));
  return [process.env["HEADRACE_CHROMIUM"] ?? "", ...paths].find(isExecutable) ?? null;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export class System {
  private output = "";

  private constructor(
    private readonly up: ChildProcess,
    private readonly directory: string,
  ) {
    for (const stream of [up.stdout, up.stderr]) stream?.on("data", (data: Buffer) => (this.output += data.toString()));
  }

  /** Started and ready. */
  static async start(): Promise<System> {
    const directory = mkdtempSync(join(tmpdir(), "headrace-js-"));
    const inherited = Object.entries(process.env).filter(([name]) => !/^(HEADRACE_|KAFKA_HOME$)/.test(name));
    const settings = {
      HEADRACE_DATA_DIR: join(directory, "data"),
      HEADRACE_MODEL: "echo",
      HEADRACE_ECHO_TOKENS_PER_SECOND: TOKENS_PER_SECOND,
      HEADRACE_KAFKA_PORT: "0",
      HEADRACE_GATEWAY_PORT: "0",
      HEADRACE_CLICKHOUSE_PORT: "0",
    };
    const env = { ...Object.fromEntries(inherited), ...settings };
    const system = new System(spawn(PYTHON, ["-m", "infra.cli", "up"], { cwd: ROOT, env }), directory);
    try {
      await system.said(/^Ready/m);
      return system;
    } catch (error) {
      await system.stop();
      throw error;
    }
  }

  get url(): string {
    return this.read("running.json")["gateway_url"] as string;
  }

  get apiKey(): string {
    return this.read("credentials.json")["api_key"] as string;
  }

  /** SIGKILL. `headrace up` starts it again, on the same port. */
  killGateway(): void {
    const children = readFileSync(`/proc/${this.up.pid}/task/${this.up.pid}/children`, "utf8").trim().split(/\s+/);
    const gateway = children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes("gateway"));
    if (gateway === undefined) throw new Error(`no gateway runs: ${this.output}`);
    process.kill(Number(gateway), "SIGKILL");
  }

  async stop(): Promise<void> {
    const ended = this.up.exitCode !== null ? null : new Promise((resolve) => this.up.once("exit", resolve));
    this.up.kill("SIGINT");
    const late = setTimeout(() => this.up.kill("SIGKILL"), 20_000);
    await ended;
    clearTimeout(late);
    rmSync(this.directory, { recursive: true, force: true });
  }

  private async said(pattern: RegExp): Promise<void> {
    for (let waited = 0; !pattern.test(this.output); waited += 50) {
      if (this.up.exitCode !== null || waited > START_MS) throw new Error(`headrace up did not start: ${this.output}`);
      await sleep(50);
    }
  }

  private read(file: string): Record<string, unknown> {
    return JSON.parse(readFileSync(join(this.directory, "data", file), "utf8")) as Record<string, unknown>;
  }
}
