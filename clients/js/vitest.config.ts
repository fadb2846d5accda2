import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    // Limits for hangs, not for speed: nothing here asserts how long a thing takes.
    testTimeout: 30_000,
    hookTimeout: 120_000,
    reporters: process.env["CI"] ? ["default"] : ["verbose"],
  },
});
