// Suites on real servers, one file after another: the servers share two cores with them.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: ["test/backends/setup.ts"],
    include: ["test/backends/**/*.test.ts"],
    fileParallelism: false,
    testTimeout: 120_000,
    expect: { poll: { timeout: 100_000 } },
    hookTimeout: 180_000,
  },
});
