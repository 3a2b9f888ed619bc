// Suites on real servers, one file after another: the servers share two cores with them.
import { defineConfig } from "vitest/config";

export default defineConfig({
  // Else Vite would take graphql's ES modules where node takes its CommonJS, and GraphQL refuses to be two.
  resolve: { alias: [{ find: /^graphql$/, replacement: "graphql/index.js" }] },
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
