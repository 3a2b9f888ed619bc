// Suites on real servers, one file after another: the servers share two cores with them.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: ["test/backends/setup.ts"],
    setupFiles: ["test/support/law-seed.ts"],
    include: ["test/backends/**/*.test.ts"],
    fileParallelism: false,
    testTimeout: 240_000,
    expect: { poll: { timeout: 200_000 } },
    hookTimeout: 300_000,
  },
});
