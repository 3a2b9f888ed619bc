// Front-end error reports on real servers: from the intake through the spool into an index, each exactly once.
import { afterAll, beforeAll, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildSpanSource, connectSites } from "#src/access/sites.ts";
import { parseConfig } from "#src/config/config.ts";
import { defaults } from "#src/config/schema.ts";
import type { Span } from "#src/core/rows.ts";
import { now } from "#src/core/time.ts";
import { startDelivery } from "#src/intake/delivery.ts";
import { buildReportSpan, readReport } from "#src/intake/error-report.ts";
import { createIntake } from "#src/intake/intake.ts";
import { operations } from "#src/operations/index.ts";
import { createServer } from "#src/server/server.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { createMemorySpooler, createWatchedTelemetry, renderReport } from "../../support/error-reports.ts";
import { testIO } from "../../support/io.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

/** The test servers without data streams, and how they fail. */
const withoutDataStreams: Readonly<Record<string, "template is refused" | "delivery is rejected">> = {
  // Its templates have no `data_stream`.
  es7: "template is refused",
  // They have data streams, but no requests to create and delete them.
  es8: "delivery is rejected",
  es9: "delivery is rejected",
};

onServers(({ name, url }) => {
  let cluster: Cluster;
  const index = "readout-frontend-test";
  const target = { site: "shop", index, layout: "auto" };
  beforeAll(async () => {
    cluster = openCluster(url);
    await cluster.remove(`${index}*`);
  });
  afterAll(async () => {
    await cluster.remove(`${index}*`);
    await cluster.close();
  });

  function stores() {
    const { reports: store } = cluster.backend.stores;
    const { reports: inspect } = cluster.backend.inspections;
    if (store === undefined || inspect === undefined) throw new Error("no report store");
    return { store, inspect };
  }
  let drawn = 0;
  async function span(over: Record<string, unknown> = {}): Promise<Span> {
    drawn += 1;
    const number = drawn;
    const report = await readReport(renderReport(number, over));
    if (report === undefined) throw new Error("no report");
    return buildReportSpan("shop", number.toString(16).padStart(32, "0"), report);
  }
  async function documents(name = index) {
    await cluster.request("POST", `/${name}/_refresh`);
    const body = JSON.stringify({ size: 1_000, track_total_hits: true });
    const answer = (await cluster.request("POST", `/${name}/_search`, body)) as {
      hits: { hits: { _id: string; _source: Record<string, unknown> }[] };
    };
    return answer.hits.hits;
  }

  test("check creates the index, proves the write permission and leaves no document", async () => {
    const report = await stores().inspect(target, never);
    expect(report).toEqual({ found: [`index ${index}, writable`], limitations: [], problems: [] });
    expect(await documents()).toEqual([]);
    expect((await stores().inspect(target, never)).problems).toEqual([]);
  });

  test("check leaves an existing index without mapping unchanged, also behind an alias", async () => {
    const bare = `${index}-bare`;
    await cluster.createIndex(bare, { aliases: { [`${bare}-alias`]: { is_write_index: true } } });
    const { found, limitations, problems } = await stores().inspect(
      { ...target, index: `${bare}-alias` },
      never,
    );
    expect({ found, problems }).toEqual({ found: [`alias ${bare}-alias, writable`], problems: [] });
    expect(limitations).toEqual([expect.stringContaining("rollover")]);
    expect(await documents(bare)).toEqual([]);
    expect(await cluster.request("GET", `/${bare}/_mapping`)).toEqual({ [bare]: { mappings: {} } });
  });

  test("stores a report that is delivered twice once, under its own id", async () => {
    const spans = await Promise.all(Array.from({ length: 50 }, () => span()));
    const { store } = stores();
    expect(await store.deliver(target, spans, never)).toEqual(new Map());
    expect(await store.deliver(target, spans, never)).toEqual(new Map());
    const ids = (await documents()).map(({ _id }) => _id);
    expect(ids.toSorted()).toEqual(spans.flatMap(({ trace_id }) => [trace_id, `${trace_id}-0`]).toSorted());
  });

  test("stores any tag name and value length unchanged", async () => {
    const odd = {
      a: "1",
      "a.b": "2",
      "a.b.c": "3",
      ".": "4",
      "..": "5",
      " ": "6",
      "x.": "7",
      ".x": "8",
      "": "9",
      "*": "10",
      [`k${"x".repeat(2_000)}`]: "y".repeat(40_000),
      ...Object.fromEntries(Array.from({ length: 1_500 }, (_, n) => [`many.${n}`, `${n}`])),
    };
    const one = await span({
      tags: odd,
      error: { name: "E", message: "m".repeat(50_000), backtrace: ["b".repeat(50_000)] },
    });
    expect(await stores().store.deliver(target, [one], never)).toEqual(new Map());
    const found = (await documents()).filter(({ _id }) => _id.startsWith(one.trace_id));
    const stored = found.find(({ _id }) => _id === one.trace_id)?._source;
    expect(stored?.attributes).toEqual(one.span_attributes);
    expect(found.find(({ _id }) => _id === `${one.trace_id}-0`)?._source.attributes).toEqual(
      one.events[0]?.attributes,
    );
  });

  test.each(["auto", "otel"])("reads the delivered span back as %s", async (layout) => {
    const spans = [
      await span(),
      await span({
        action: "CartPage",
        revision: "abc",
        tags: { größe: "🎉", "a.b": "1", a: "2", empty: "" },
        params: { id: "7" },
        error: { name: "E", message: "m", backtrace: ["one", "two"] },
        breadcrumbs: [{ category: "Fetch", action: "GET" }],
      }),
    ];
    expect(await stores().store.deliver(target, spans, never)).toEqual(new Map());
    await cluster.request("POST", `/${index}/_refresh`);
    const { traces } = cluster.backend.stores;
    const source = buildSpanSource("shop", { index, layout: layout });
    const traceIds = spans.map(({ trace_id }) => trace_id);
    const of = { by: "trace", traceIds, select: "all" } as const;
    const found: Span[] = [];
    const query = { sources: [source], of, budget: createBudget(1_000) } as const;
    for await (const batch of traces?.find(query, never) ?? []) found.push(...batch);
    const byId = (a: Span, b: Span) => (a.trace_id < b.trace_id ? -1 : 1);
    expect(found.sort(byId)).toEqual(spans.sort(byId));
  });

  test("posts, spools, delivers and answers a report by the tracing routes", async () => {
    const { server, post, spooler, close } = await serve();
    const ask = async (path: string, body: object) => {
      const init = {
        method: "POST",
        headers: { authorization: "Bearer t" },
        body: JSON.stringify({ site_ids: ["shop"], ...body }),
      };
      const answer = await server.fetch(`http://readout/api/v2/tracing/${path}`, init);
      expect(answer.status).toBe(200);
      return answer.json();
    };
    const pagination = { per_page: 100, order: "DESC", cursor: "Time" };
    // Before the first report there is no index, and nothing is found.
    expect(await ask("traces/errors", { pagination })).toEqual([]);
    const bodies = [1, 2, 3].map((number) =>
      renderReport(number, { action: "Page", tags: { number: `${number}` } }),
    );
    for (const body of bodies) expect((await post(body)).status).toBe(200);
    await expect.poll(async () => (await spooler.readLevel()).reports).toBe(0);
    await cluster.request("POST", `/${servedIndex}/_refresh`);
    const rows = await ask("traces/errors", { pagination });
    expect(rows.map(({ tags }: { tags: object }) => tags)).toEqual(
      expect.arrayContaining([{ number: "1" }, { number: "2" }, { number: "3" }]),
    );
    expect(rows).toHaveLength(3);
    const [row, ...none] = await ask("traces/errors", { pagination, query: "tag.number=2" });
    expect(none).toEqual([]);
    expect(row).toMatchObject({ namespace: "frontend", action_name: "Page", duration: 0 });
    const [detail] = await ask("trace/error", { trace_id: row.trace_id });
    expect(detail).toMatchObject({
      span_id: row.span_id,
      "events.name": ["exception"],
      status_message: "number 2",
    });
    const { performance, errors } = await ask("locator", { trace_id: row.trace_id });
    expect([performance, errors]).toEqual([[], [expect.objectContaining({ exception_name: "TypeError" })]]);
    expect(await ask("traces/performance", { pagination })).toEqual([]);
    await close();
  });

  const servedIndex = `${index}-served`;
  /** The program as `readout serve` assembles it, over this cluster. */
  async function serve() {
    const config = parseConfig(
      `backends: { elk: { kind: elastic, url: "${url}" } }
sites: { shop: { frontend: { keys: [k], backend: elk, index: ${servedIndex} } } }
`,
      "readout.yaml",
      { kinds: new Map([[elastic.kind, elastic]]), env: {}, readText: testIO.readText },
    );
    const sites = connectSites(config, new Map([["elk", cluster.backend]]));
    const { telemetry } = createWatchedTelemetry();
    const spooler = createMemorySpooler();
    const delivery = startDelivery({ spool: spooler, sites, telemetry });
    const { spoolBytes, keyRate, addressRate, proxies } = defaults;
    const intake = createIntake({
      sites,
      spool: spooler,
      telemetry,
      now,
      onSpooled: delivery.wake,
      config: { spool: ":memory:", spoolBytes, keyRate, addressRate, proxies },
    });
    const server = createServer({
      operations,
      sites,
      telemetry,
      now,
      intake,
      limits: defaults.limits,
      authenticate: async () => ({
        user: "ana",
        token: "ana",
        account: "ana",
        maySee: () => true,
        hasScope: () => true,
      }),
      loadGraphql: () => Promise.reject(new Error("not asked for")),
    });
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    const post = (body: string) =>
      fetch(`http://127.0.0.1:${port}/errors?api_key=k`, { method: "POST", body });
    const close = async () => {
      await server.close(0);
      await delivery.close();
    };
    return { server, post, spooler, close };
  }

  test("reports a document that the mapping rejects and stores its neighbours", async () => {
    const strict = `${index}-strict`;
    await cluster.createIndex(strict, {
      mappings: { properties: { name: { type: "long" }, trace_id: { type: "keyword" } } },
    });
    const [good, bad] = [await span({ action: "7" }), await span({ action: "no number" })];
    const refusals = await stores().store.deliver({ ...target, index: strict }, [good, bad], never);
    expect([...refusals.keys()]).toEqual([bad.trace_id]);
    expect(refusals.get(bad.trace_id)).toMatch(/^status 400: /);
  });

  test.each<[string, (name: string) => Promise<unknown>]>([
    [
      "an alias of two indices without one to write to",
      async (name) => {
        await cluster.createIndex(`${name}-1`, { aliases: { [name]: {} } });
        await cluster.createIndex(`${name}-2`, { aliases: { [name]: {} } });
      },
    ],
    [
      "an index whose pipeline is missing",
      (name) => cluster.createIndex(name, { settings: { "index.default_pipeline": `${index}-none` } }),
    ],
    [
      "a closed index",
      async (name) => {
        await cluster.createIndex(name, {});
        await cluster.request("POST", `/${name}/_close`);
      },
    ],
  ])("refuses no report for good because of %s", async (title, create) => {
    const name = `${index}-${title.replaceAll(" ", "-")}`;
    await create(name);
    const there = { ...target, index: name };
    await expect(stores().store.deliver(there, [await span(), await span()], never)).rejects.toMatchObject({
      name: "BackendError",
      failure: "rejected",
    });
    const { problems } = await stores().inspect(there, never);
    expect(problems).toEqual([expect.stringContaining("reports cannot be written")]);
  });

  test("reports a write-blocked index as a failure, not as a rejection", async () => {
    const blocked = `${index}-blocked`;
    await cluster.createIndex(blocked, { settings: { "index.blocks.write": true } });
    await expect(
      stores().store.deliver({ ...target, index: blocked }, [await span()], never),
    ).rejects.toMatchObject({
      name: "BackendError",
      failure: "denied",
    });
    const { problems } = await stores().inspect({ ...target, index: blocked }, never);
    expect(problems).toEqual([expect.stringContaining("reports cannot be written")]);
  });

  test("creates a data stream where a template claims the name", async () => {
    const stream = `${index}-stream`;
    const template = {
      index_patterns: [stream],
      data_stream: {},
      priority: 900,
      template: { mappings: { properties: { "@timestamp": { type: "date" } } } },
    };
    const excuse = withoutDataStreams[name];
    const made = cluster.request("PUT", `/_index_template/${stream}`, JSON.stringify(template));
    if (excuse === "template is refused") {
      await expect(made).rejects.toThrow("unknown field [data_stream]");
      return;
    }
    await made;
    try {
      const { store, inspect } = stores();
      const one = await span();
      const there = { ...target, index: stream };
      if (excuse === "delivery is rejected") {
        await expect(store.deliver(there, [one], never)).rejects.toMatchObject({ failure: "rejected" });
        return;
      }
      expect(await store.deliver(there, [one], never)).toEqual(new Map());
      expect(await store.deliver(there, [one], never)).toEqual(new Map());
      expect((await documents(stream)).map(({ _id }) => _id).toSorted()).toEqual([
        one.trace_id,
        `${one.trace_id}-0`,
      ]);
      expect((await inspect(there, never)).limitations).toEqual([expect.stringContaining("rollover")]);
    } finally {
      await cluster.request("DELETE", `/_data_stream/${stream}`).catch(() => {});
      await cluster.request("DELETE", `/_index_template/${stream}`);
    }
  });
});
