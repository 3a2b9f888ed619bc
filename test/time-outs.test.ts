// Time-outs of tests, which must not end what is only slow. The runner has one for each test and one for each expect.poll,
// longer than any machine needs.
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

/** What has a time-out of its own, what to use instead, and who may use it for which reason. */
const limited: readonly (readonly [
  instead: string,
  use: RegExp,
  allowed: Readonly<Record<string, string>>,
])[] = [
  [
    "`never` of test/support/signals.ts",
    /AbortSignal\.timeout\(/,
    {
      "test/servers/prometheus.ts": "asks again whoever does not answer, until it is ready",
      "test/servers/servers.ts": "asks again whoever does not answer, until it is ready",
      "test/servers/victoria-metrics.ts": "asks again whoever does not answer, until it is ready",
      "test/backends/program/crash-recovery.test.ts": "counts what was not answered as not acknowledged",
    },
  ],
  [
    "expect.poll",
    /vi\.waitFor\(/,
    {
      "test/backends/program/gateway.test.ts": "waits in a hook, where vitest has no expect.poll",
      "test/backends/program/shipped-configurations.test.ts":
        "waits in a hook, where vitest has no expect.poll",
    },
  ],
  ["expect.poll with the time-out of the configuration", /\.poll\([^;]*\{ timeout: [\d_]+(?:,| \})/, {}],
];

test.each(limited)("use %s, not %s", (_, use, allowed) => {
  const using = globSync("test/**/*.ts", { cwd: root }).filter((file) =>
    use.test(readFileSync(`${root}${file}`, "utf8")),
  );
  expect(using.sort()).toEqual(Object.keys(allowed).sort());
});
