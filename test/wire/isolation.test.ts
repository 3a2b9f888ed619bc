// A hanging backend must not block the clients of others, and disconnected clients must not leave work behind.
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { guardDefaults } from "#resolvers/http/guard.ts";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import type { Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { checkVisual } from "#src/operations/metrics/visuals.ts";
import { createServer } from "#src/server/server.ts";
import type { Backend } from "#src/store/backend.ts";
import type { LogStore } from "#src/store/logs.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { createVisualFinder, readVisual } from "#src/visuals/visual.ts";
import { testIO } from "../support/io.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../support/scripted-http-source.ts";
import { never } from "../support/signals.ts";
import { linesBody, linesPath } from "./harness.ts";

const token = "ana";

const published = "AAAAAAAAAAAAAAAAAAAAAA";

/** A site for each store of log lines; what is published is of `metrics`, in the first one. */
function serve(
  stores: Readonly<Record<string, LogStore>>,
  requests: number,
  { metrics, tokenRequests = requests }: { metrics?: MetricStore; tokenRequests?: number } = {},
) {
  const sites = Object.entries(stores).map(([id, store]): [string, Site] => {
    const sources = new Map([["app", { id: "app", index: "app", layout: "ecs", tenantFilter: undefined }]]);
    return [
      id,
      { id, retention: 86_400_000, counterDefault: "cumulative", logs: { backend: id, store, sources } },
    ];
  });
  const [first] = sites;
  if (metrics !== undefined && first !== undefined) {
    first[1] = { ...first[1], metrics: { backend: "prom", store: metrics, match: {} } };
  }
  const visual = readVisual(
    JSON.stringify({
      id: published,
      title: "CPU",
      type: "line",
      site: sites[0]?.[0],
      range: "1h",
      select: [{ name: "cpu", tags: {}, field: "gauge" }],
    }),
    "visual.yaml",
    checkVisual,
  );
  const now = () => fromMillis(Date.UTC(2026, 0, 15, 11));
  const server = createServer({
    operations,
    visuals: {
      find: createVisualFinder([visual]),
      createAnswerCache: () => (_, compute) => compute(new AbortController().signal),
    },
    authenticate: createAuthenticator([{ user: "ana", sha256: hashToken(token), sites: "*" }], now),
    sites: new Map(sites),
    limits: { ...defaults.limits, requests, tokenRequests },
    telemetry: createTelemetry({ write: () => {} }),
    now,
    // On a loaded machine a second may pass without a turn.
    slotWait: 30_000,
    loadGraphql: () => Promise.reject(new Error("not asked for")),
  });
  const ask = (site: string, signal?: AbortSignal) =>
    server.fetch(`http://readout${linesPath}`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}` },
      body: JSON.stringify(linesBody({ site_id: site })),
      ...(signal && { signal }),
    });
  /** Without a token. */
  const look = (form: "" | "/csv" = "") =>
    server.fetch(`http://readout/api/v2/saved_visuals/${published}${form}`);
  return { ask, look, server };
}

/** Answers only after `end`. */
function silent() {
  const over = Promise.withResolvers<void>();
  let asked = 0;
  const store: LogStore = {
    async *lines(_, signal) {
      asked += 1;
      const left = Promise.withResolvers<never>();
      signal.addEventListener("abort", () => left.reject(signal.reason));
      await Promise.race([over.promise, left.promise]);
      yield* [];
    },
    isWithinLimits: async () => true,
  };
  return { store, end: over.resolve, asked: () => asked };
}

describe("request slots: share of a backend", () => {
  test("a hanging backend is capped at its share once three quarters of the slots are taken", async () => {
    const dead = silent();
    const { ask } = serve(
      { dead: dead.store, a: createMemoryLogs(), b: createMemoryLogs(), c: createMemoryLogs() },
      40,
    );
    const waiting = Array.from({ length: 200 }, () => ask("dead"));
    await expect.poll(dead.asked).toBe(30);
    for (const site of ["a", "b", "c", "a", "b", "c"]) expect((await ask(site)).status).toBe(200);
    const refused = await ask("dead");
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([500, "1"]);
    dead.end();
    const statuses = (await Promise.all(waiting)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(30);
    // Every slot was released.
    const again = await Promise.all(Array.from({ length: 30 }, () => ask("dead")));
    expect(new Set(again.map(({ status }) => status))).toEqual(new Set([200]));
  });

  test("the only backend may use all slots", async () => {
    const slow = silent();
    const { ask } = serve({ only: slow.store }, 40);
    const waiting = Array.from({ length: 40 }, () => ask("only"));
    await expect.poll(slow.asked).toBe(40);
    slow.end();
    const statuses = (await Promise.all(waiting)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(40);
  });
});

describe("request slots: anonymous clients", () => {
  /** Answers only when released: that the metric is unknown. */
  function silentMetrics() {
    const over = Promise.withResolvers<undefined>();
    let asked = 0;
    const type: MetricStore["type"] = () => {
      asked += 1;
      return over.promise;
    };
    return {
      store: { ...createMemoryMetrics("prom"), type },
      end: () => over.resolve(undefined),
      asked: () => asked,
    };
  }
  const count = (statuses: readonly number[]) => {
    const counts: Record<number, number> = {};
    for (const status of statuses) counts[status] = (counts[status] ?? 0) + 1;
    return counts;
  };

  test("share the request limit of one token, in both forms", async () => {
    const metrics = silentMetrics();
    const { ask, look } = serve({ shop: createMemoryLogs() }, 40, {
      metrics: metrics.store,
      tokenRequests: 20,
    });
    const waiting = Array.from({ length: 40 }, (_, n) => look(n % 2 === 0 ? "" : "/csv"));
    await expect.poll(metrics.asked).toBe(20);
    // As many more wait for a moment.
    const refused = await look();
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "1"]);
    expect((await ask("shop")).status).toBe(200);
    metrics.end();
    expect(count((await Promise.all(waiting)).map(({ status }) => status))).toEqual({ 200: 40 });
    expect((await look("/csv")).status).toBe(200);
  });

  test("are limited to the backend share", async () => {
    const metrics = silentMetrics();
    const { ask, look } = serve({ shop: createMemoryLogs() }, 40, { metrics: metrics.store });
    const waiting = Array.from({ length: 40 }, () => look());
    // Above three quarters of all slots it has no more than its share, a half.
    await expect.poll(metrics.asked).toBe(30);
    expect((await ask("shop")).status).toBe(200);
    metrics.end();
    expect(count((await Promise.all(waiting)).map(({ status }) => status))).toEqual({ 200: 30, 500: 10 });
  });
});

describe("disconnecting clients", () => {
  let source: ScriptedSource | undefined;
  let backend: Backend | undefined;
  afterEach(async () => {
    await backend?.close();
    await source?.close();
  });

  test("abort their backend requests, at random moments", async () => {
    let random = 7;
    const below = (limit: number): number => {
      random = (Math.imul(random, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((random / 4_294_967_296) * limit);
    };
    let searches = 0;
    let left = 0;
    const open = new Set<object>();
    const mapping = { app: { mappings: { properties: { "@timestamp": { type: "date" } } } } };
    /** At the end nothing is answered until as many requests have arrived as the backend has slots. */
    let held: (() => void)[] | undefined;
    const answerTogether = (answer: () => void): void => {
      if (held !== undefined && held.push(answer) < guardDefaults.concurrent) return;
      for (const each of held ?? [answer]) each();
      held = undefined;
    };
    const product = { version: { number: "8.19.8" } };
    const nothing = { timed_out: false, _shards: { total: 1, failed: 0 }, hits: { hits: [] } };
    source = await openScriptedSource((response, request) => {
      if (request.url === "/") return answerTogether(() => sendJson(response, product));
      if (!request.url?.includes("_search")) return sendJson(response, mapping);
      if (held !== undefined) return answerTogether(() => sendJson(response, nothing));
      searches += 1;
      open.add(response);
      response.on("close", () => {
        open.delete(response);
        if (!response.writableFinished) left += 1;
      });
      // Half are answered after some turns of the event loop, and half never.
      let turns = below(2) === 0 ? 1 + below(30) : Number.POSITIVE_INFINITY;
      const step = (): void => {
        if (response.destroyed) return;
        if (turns-- > 0) {
          if (Number.isFinite(turns)) setImmediate(step);
          return;
        }
        sendJson(response, nothing);
      };
      step();
    });
    backend = elastic.create("elk", elastic.parseConfig({ url: source.url, timeout: "60s" }), testIO);
    const store = backend.stores.logs as LogStore;
    const { ask } = serve({ shop: store }, 1_000);
    const outcomes = new Map<unknown, number>();
    const rounds = sampleRuns(50, { share: 5 });
    for (let round = 0; round < rounds; round += 1) {
      const asked = Array.from({ length: 20 }, async () => {
        const leaving = new AbortController();
        const answer = ask("shop", leaving.signal).then(
          ({ status }) => status,
          () => "left",
        );
        for (let turns = below(40); turns > 0; turns -= 1) await new Promise((next) => setImmediate(next));
        leaving.abort();
        return answer;
      });
      for (const outcome of await Promise.all(asked)) outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    }
    await expect.poll(() => open.size).toBe(0);
    expect(searches).toBeGreaterThan(2 * rounds);
    expect(left).toBeGreaterThan(2 * rounds);
    // Every slot of the backend is free again. An eighth is kept for others than who asks.
    held = [];
    const others = guardDefaults.concurrent / 8;
    const probes = Array.from({ length: guardDefaults.concurrent - others }, () => backend?.probe(never));
    const asked = Array.from({ length: others }, async () => (await ask("shop")).status);
    await Promise.all(probes);
    expect(await Promise.all(asked)).toEqual(Array.from({ length: others }, () => 200));
  });
});
