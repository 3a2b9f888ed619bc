// Suites on real servers, one process, one server after another: two cores carry one JVM and the suite.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/backends/**/*.test.ts"],
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 180_000,
    isolate: false,
  },
});
