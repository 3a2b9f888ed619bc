// The fuzz suites at their full length; `npm run test:program` runs the same files for a few seconds.
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { alias: [{ find: /^graphql$/, replacement: "graphql/index.js" }] },
  test: {
    include: ["test/fuzz/**/*.test.ts"],
    env: { FUZZ: "long" },
    maxWorkers: "100%",
    testTimeout: 3_600_000,
    hookTimeout: 60_000,
  },
});
