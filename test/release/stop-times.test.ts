// What stops the program waits longer than the program takes to end, in each file that says how long.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (path: string): string => readFileSync(path, "utf8");

/** Seconds, as a pattern finds them. */
function readSeconds(path: string, pattern: RegExp): number {
  const [, found] = pattern.exec(read(path)) ?? [];
  if (found === undefined) throw new Error(`${path} has no ${pattern}`);
  return Number(found.replaceAll("_", ""));
}

const serve = "src/cli/serve/serve.ts";
const readTimeout = (name: string) =>
  readSeconds(serve, new RegExp(`^const ${name}: Millis = ([\\d_]+);`, "m")) / 1_000;
/** The process itself ends within half a second of its command. */
const longest = readTimeout("drainTimeout") + readTimeout("flushTimeout") + 0.5;

test.each([
  ["deploy/readout.service", /^TimeoutStopSec=(\d+)$/m],
  ["docker-compose.yml", /stop_grace_period: (\d+)s/],
  ["docs/how-to/operate.md", /stop_grace_period: (\d+)s/],
  ["docs/how-to/install.md", /stop_grace_period: (\d+)s/],
])("%s", (path, pattern) => {
  expect(readSeconds(path, pattern)).toBeGreaterThan(longest);
});

test.each([
  "deploy/helm/readout/templates/_helpers.tpl",
  "deploy/kubernetes/readout.yaml",
  "docs/how-to/operate.md",
])("%s, after the pause before the signal", (path) => {
  const pause = readSeconds(path, /preStop: \{ sleep: \{ seconds: (\d+) \} \}/);
  expect(readSeconds(path, /terminationGracePeriodSeconds: (\d+)/) - pause).toBeGreaterThan(longest);
});
