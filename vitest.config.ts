// `npm test`: hermetic, no network. Suites on real servers have a configuration of their own.
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** What starts the program as a process, or plays a whole storm of faults. It has no laws. */
const processTests = ["test/program/**/*.test.ts", "test/faults/**/*.test.ts", "test/fuzz/stalls.test.ts"];

/**
 * What `npm run test:program` runs: the program as a whole, from outside, and what waits for disks, threads, time-outs and
 * sources that fail. `npm test` has the parts, in a minute.
 */
export const programTests = [
  ...processTests,
  // As a process and over sockets, under hostile input, as its documents show it and clients of others ask it.
  "test/wire/**/*.test.ts",
  "test/fuzz/**/*.test.ts",
  "test/docs.test.ts",
  "test/server/**/*.test.ts",
  "test/graphql/mesh*.test.ts",
  "test/graphql/existing-clients/**/*.test.ts",
  "test/graphql/{concurrent-links,json-pieces,links,query-limits,rest-equivalence}.test.ts",
  "test/mcp/{clients,tool-call,tools}.test.ts",
  // Its commands over whole stacks and configurations, and what a release is made of.
  "test/cli/{init*,refused-start}.test.ts",
  "test/config/wrong-types.test.ts",
  "test/release/**/*.test.ts",
  // Its files on a disk, and the threads that write them.
  "test/audit/**/*.test.ts",
  "test/intake/**/*.test.ts",
  // Rollers that make figures of hours of spans, step by step, and end at any of them.
  "test/tracing/rollup-store/roll-step.test.ts",
  // Sources that hang, refuse, end and come back.
  "test/federation/partial-answers.test.ts",
  "test/resolvers/{elastic,prometheus}/client/**/*.test.ts",
  "test/resolvers/**/faults.test.ts",
  "test/resolvers/elastic/search/{index-closed,index-deleted,refused-rights}.test.ts",
  "test/telemetry/tracer.test.ts",
];

// Workers, and the programs that tests start, take compiled code and stripped types from where the program keeps them.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL("node_modules/.cache/readout", import.meta.url));

/** `npm run test:laws`, which tries new inputs, unless it is told which. */
const isExhaustive = process.env.RUNS === "all";
if (!isExhaustive) process.env.LAW_SEED ??= "1";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    setupFiles: ["test/support/law-seed.ts", "test/support/law-sample.ts"],
    exclude: ["test/backends/**", "node_modules/**", ...(isExhaustive ? processTests : programTests)],
    // Loading the modules anew for each file would take half as long as the tests; no test leaves anything in them.
    isolate: false,
    // Node runs the modules as it does in the program. Vite would make others of them, whose imports are slower, and
    // would take graphql's ES modules where node takes its CommonJS, and GraphQL refuses to be two.
    experimental: { viteModuleRunner: false, nodeLoader: false },
    // One more than processors, because some tests wait: for a program that starts, for a deadline. Each more compiles all
    // that is tested once more.
    maxWorkers: availableParallelism() + 1,
    // Only against what never ends: machines are shared, and no test is judged by its time.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 50_000 } },
  },
});
