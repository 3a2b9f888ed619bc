// Time-outs of tests, which must not end what is only slow. The runner has one for each test, longer than any machine needs.
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

/** What has a time-out of its own, which no setting of the runner reaches, and who may use it for which reason. */
const limited: readonly (readonly [what: string, use: string, allowed: Readonly<Record<string, string>>])[] =
  [
    [
      "AbortSignal.timeout(",
      "`never` of test/support/signals.ts",
      {
        "test/servers/prometheus.ts": "asks again whoever does not answer, until it is ready",
        "test/servers/servers.ts": "asks again whoever does not answer, until it is ready",
        "test/servers/victoria-metrics.ts": "asks again whoever does not answer, until it is ready",
        "test/backends/program/crash-recovery.test.ts": "counts what was not answered as not acknowledged",
      },
    ],
    [
      "vi.waitFor(",
      "expect.poll",
      {
        "test/backends/program/gateway.test.ts": "waits in a hook, where vitest has no expect.poll",
        "test/backends/program/shipped-configurations.test.ts":
          "waits in a hook, where vitest has no expect.poll",
      },
    ],
  ];

test.each(limited)("%s is used where it must be, elsewhere %s", (what, _, allowed) => {
  const own = "test/time-outs.test.ts";
  const using = globSync("test/**/*.ts", { cwd: root }).filter(
    (file) => file !== own && readFileSync(`${root}${file}`, "utf8").includes(what),
  );
  expect(using.sort()).toEqual(Object.keys(allowed).sort());
});
