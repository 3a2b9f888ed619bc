// `npm test`: hermetic, no network. Suites on real servers have a configuration of their own.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/backends/**", "node_modules/**"],
  },
});
