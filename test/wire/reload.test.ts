// Reloads under load: each request is answered by one configuration, and none is refused.
import { expect, test } from "vitest";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import type { Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { ServedConfig } from "#src/server/server.ts";
import type { LogStore } from "#src/store/logs.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { base, createSubject, linesBody, linesPath } from "./harness.ts";

const token = "of-all-configurations";
const reloads = sampleRuns(1_000);
/** More rows than are buffered before an answer begins. */
const streamed = 1_500;

/** A configuration whose lines contain its number. It may be closed once no request uses it. */
function configuration(number: number) {
  let closed = false;
  let late = 0;
  const store: LogStore = {
    async *lines() {
      for (let from = 0; from < streamed; from += 100) {
        await new Promise((resolve) => setImmediate(resolve));
        if (closed) late += 1;
        yield Array.from({ length: 100 }, (_, n): LogLine => {
          const time = fromMillis(base + from + n) as Instant;
          return {
            id: `${from + n}`,
            source_id: "app",
            time,
            severity: "info",
            message: `${number}`,
            json: "{}",
          };
        });
      }
    },
    isWithinLimits: async () => true,
  };
  const sources = new Map([["app", { id: "app", index: "app", layout: "auto", tenantFilter: undefined }]]);
  const site: Site = {
    id: "shop",
    retention: 86_400_000,
    counterDefault: "cumulative",
    logs: { backend: "memory", store, sources },
  };
  const served: ServedConfig = {
    authenticate: createAuthenticator([{ user: "ana", sha256: hashToken(token), sites: "*" }], () =>
      fromMillis(base),
    ),
    sites: new Map([["shop", site]]),
    limits: defaults.limits,
  };
  const close = () => {
    closed = true;
  };
  return { served, close, late: () => late };
}

test(`${reloads} reloads under load: every answer is complete and of one configuration`, async () => {
  const { server } = createSubject();
  const made = [configuration(0)];
  const over: Promise<void>[] = [];
  const replace = () => {
    const next = configuration(made.length);
    const old = made.at(-1);
    made.push(next);
    over.push(server.reload(next.served).then(() => old?.close()));
  };
  replace();
  let reloading = true;
  const wrong: string[] = [];
  const numbers = new Set<string>();
  let streams = 0;
  const client = async (rows: number) => {
    while (reloading) {
      const asked = made.length - 1;
      const answer = await server.fetch(`http://readout${linesPath}`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}` },
        body: JSON.stringify(linesBody({}, { per_page: rows })),
      });
      const text = await answer.text();
      if (answer.status !== 200) {
        wrong.push(`${answer.status} ${text}`);
        continue;
      }
      const lines: { message: string }[] = JSON.parse(text);
      const [number = "none", ...others] = new Set(lines.map(({ message }) => message));
      if (lines.length !== rows || others.length > 0 || Number(number) < asked)
        wrong.push(`${lines.length} lines of ${number} ${others}, asked for ${rows} at ${asked}`);
      numbers.add(number);
      if (rows === streamed) streams += 1;
    }
  };
  const clients = [5, 5, 5, 300, streamed, streamed].map(client);
  for (let n = 0; n < reloads; n += 1) {
    replace();
    await new Promise((resolve) => setImmediate(resolve));
  }
  // The last clients need a moment to be among those asked for.
  await expect.poll(() => streams).toBeGreaterThan(10);
  reloading = false;
  await Promise.all(clients);
  expect(wrong).toEqual([]);
  expect(numbers.size).toBeGreaterThan(reloads / 10);
  // Every replaced configuration is closed, and none before its last answer.
  await Promise.all(over);
  expect(over).toHaveLength(reloads + 1);
  expect(made.filter(({ late }) => late() > 0)).toEqual([]);
});
