import { defineConfig } from "vitest/config";

const factor = Number(process.env["HEADRACE_TEST_TIME_FACTOR"] ?? 1);

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    // Limits for hangs, not for speed: nothing here asserts how long a thing takes.
    testTimeout: 90_000 * factor,
    hookTimeout: 120_000 * factor,
    reporters: process.env["CI"] ? ["default"] : ["verbose"],
  },
});
