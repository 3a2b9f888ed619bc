// `?explain=true` on the demo server, and `readout explain` with its own configuration.

import { afterAll, describe, expect, test } from "vitest";
import { elastic as elasticKind } from "#resolvers/elastic/elastic.ts";
import { memory } from "#resolvers/memory/memory.ts";
import { run } from "#src/cli/explain.ts";
import { printYaml } from "#src/config/yaml/print-yaml.ts";
import { BackendError } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import type { BackendKind } from "#src/store/backend.ts";
import { parseTraceQuery, printTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { encodeActionDigest } from "#src/tracing/spans/digest.ts";
import { clock, createDemo } from "../support/demo-server.ts";
import { createShell } from "../support/fake-shell.ts";

const demo = await createDemo();
afterAll(() => demo.close());
const lines = (over: object = {}) => ({
  site_id: "demo-shop",
  source_ids: ["app", "nginx"],
  query: "",
  use_expressions: true,
  pagination: { per_page: 100, order: "DESC" },
  ...over,
});
const ask = (path: string, body: object) => demo.rest("POST", `/api/v2/${path}`, body);

describe("?explain=true", () => {
  test("explains a log query and counts the rows that the same request returns", async () => {
    const body = lines({ query: "severity=error OR (severity=warn AND message:timeout)" });
    const rows = (await ask("logs/lines", body)).body as unknown[];
    const { status, body: told } = await ask("logs/lines?explain=true", body);
    expect(status).toBe(200);
    expect(told).toMatchObject({
      means: "severity=error OR severity=warn AND message:timeout",
      order: "DESC",
      per_page: 100,
      document_limit: 500_000,
      sources: [
        { source_id: "app", leaves: [{ leaf: "severity=error", by: "documents" }, {}, {}] },
        { source_id: "nginx", leaves: [{}, {}, { leaf: "message:timeout" }] },
      ],
      answer: { rows: rows.length },
      requests: [],
    });
    const { read } = told as { read: { source_id: string; documents: number; kept: number }[] };
    expect(read.map(({ source_id }) => source_id).sort()).toEqual(["app", "nginx"]);
    const kept = read.reduce((sum, part) => sum + part.kept, 0);
    expect(kept).toBeGreaterThanOrEqual(rows.length);
    expect(read.every(({ documents, kept }) => documents >= kept && kept > 0)).toBe(true);
  });

  test.each([
    ["actions", {}],
    ["site_edges", {}],
    ["action_edges", { namespace: "shop/web", action: "GET /checkout" }],
    ["slow_events", {}],
    ["slow_events/actions", { digest: "x" }],
  ])("explains %s of a site", async (route, body) => {
    const { status, body: told } = await ask(`tracing/${route}?explain=true`, {
      site_id: "demo-shop",
      from: "2026-01-01T00:00:00Z",
      to: "2027-01-01T00:00:00Z",
      ...body,
    });
    expect(status).toBe(200);
    expect(told).toMatchObject({
      document_limit: expect.any(Number),
      sources: [{ site_id: "demo-shop", backend: "memory", range: { from: expect.any(String) } }],
      answer: { rows: expect.any(Number) },
    });
  });

  test("explains trace listings and metrics requests", async () => {
    const listing = { site_ids: ["demo-shop"], query: "tag.plan=pro checkout", pagination: { per_page: 5 } };
    const rows = (await ask("tracing/traces/performance", listing)).body as unknown[];
    expect((await ask("tracing/traces/performance?explain=true", listing)).body).toMatchObject({
      means: 'tag.plan=pro AND "checkout"',
      filters: [],
      leaves: [
        { leaf: "tag.plan=pro", by: "candidates", why: expect.stringContaining("the index narrows") },
        { leaf: '"checkout"', by: "documents", why: expect.stringContaining("a bare word") },
      ],
      sources: [{ site_id: "demo-shop", backend: "memory" }, { site_id: "demo-shop" }],
      answer: { rows: rows.length },
      read: [{ documents: expect.any(Number) }],
    });
    const narrowed = { ...listing, query: "namespace!=web", namespace: "web", duration: 5, digests: ["x"] };
    const filtersOf = async (body: object) => {
      const told = (await ask("tracing/traces/errors?explain=true", body)).body;
      const { filters, leaves } = told as Record<"filters" | "leaves", Record<"filter" | "by", string>[]>;
      expect(leaves).toMatchObject([{ leaf: "namespace!=web", by: "documents" }]);
      return filters.map(({ filter, by }) => `${filter} ${by}`);
    };
    expect(await filtersOf(narrowed)).toEqual([
      "namespace candidates",
      "duration candidates",
      "digests candidates",
    ]);
    const background = { ...narrowed, namespace: "background" };
    expect(await filtersOf(background)).toContain("namespace documents");
    const requests = (await ask("tracing/traces/performance?explain=true", narrowed)).body;
    expect(requests).toMatchObject({
      filters: expect.arrayContaining([expect.objectContaining({ filter: "digests", by: "documents" })]),
    });
    const digest = encodeActionDigest({ namespace: "web", action: "A" });
    expect(await filtersOf({ ...narrowed, digests: [digest] })).toContain("digests candidates");
    const either = {
      ...listing,
      query: "tag.a=1 (tag.b=2 OR trace_id=3) trace_id=4 tag.c!=5 namespace=background",
    };
    const { leaves } = (await ask("tracing/traces/performance?explain=true", either)).body as {
      leaves: Record<"leaf" | "by" | "why", string>[];
    };
    expect(leaves.map(({ leaf, by }) => `${leaf} ${by}`)).toEqual([
      "tag.a=1 candidates",
      "tag.b=2 documents",
      "trace_id=3 documents",
      "trace_id=4 candidates",
      "tag.c!=5 documents",
      "namespace=background documents",
    ]);
    expect(leaves[3]?.why).toContain("only the trace that it names");
    const range = { from: "2026-01-15T11:00:00Z", to: "2026-01-15T11:30:00Z" };
    const select = [{ name: "transaction_duration", tags: { action: "*" }, field: "P95" }];
    const series = { site_id: "demo-shop", ...range, select };
    const { body } = await ask("metrics/timeseries", series);
    expect((await ask("metrics/timeseries?explain=true", series)).body).toMatchObject({
      resolution: "MINUTELY",
      match: { site: "demo-shop" },
      selectors: [{ name: "transaction_duration", field: "p_95", type: "measurement" }],
      answer: { rows: (body as { series: unknown[] }).series.length },
    });
  });

  test("requires the same token, sites and valid query as the request itself", async () => {
    const path = "/api/v2/logs/lines?explain=true";
    const url = `http://readout${path}`;
    const anonymous = await demo.server.fetch(url, { method: "POST", body: JSON.stringify(lines()) });
    expect(anonymous.status).toBe(401);
    for (const over of [{ site_id: "no-such-site" }, { source_ids: ["none"] }, { query: "a=" }]) {
      const plain = await ask("logs/lines", lines(over));
      expect(await ask("logs/lines?explain=true", lines(over))).toEqual(plain);
      expect(plain.status).toBeGreaterThanOrEqual(400);
    }
  });

  test("includes a refusal that occurs while reading, with the body of the error", async () => {
    const small = await createDemo({ limits: { documents: 10 } });
    const body = lines({ query: "message:nothing-has-this" });
    const plain = await small.rest("POST", "/api/v2/logs/lines", body);
    const { status, body: told } = await small.rest("POST", "/api/v2/logs/lines?explain=true", body);
    await small.close();
    expect(plain).toMatchObject({ status: 422, body: { error: "result_too_large" } });
    expect(status).toBe(200);
    expect(told).toMatchObject({ document_limit: 10, answer: { status: 422, failed: plain.body } });
  });

  test("reports a failing backend with the body that a client would receive", async () => {
    const broken = await createDemo({
      watch: (backend) => ({
        ...backend,
        stores: {
          ...backend.stores,
          logs: {
            // biome-ignore lint/correctness/useYield: it fails before its first batch
            lines: async function* () {
              throw new BackendError("elk", "denied", "user readonly may not read logs-*");
            },
          },
        },
      }),
    });
    const { body } = await broken.rest("POST", "/api/v2/logs/lines?explain=true", lines());
    await broken.close();
    expect(body).toMatchObject({
      sources: [{ notes: ["the store does not tell how it finds lines"] }, {}],
      answer: { status: 500, failed: { error: "A data source refused the adapter's credentials" } },
    });
    expect(JSON.stringify(body)).not.toContain("readonly");
  });

  test("is refused on other routes and for values other than true and false", async () => {
    const refused = { status: 422, body: { details: { issues: [{ path: "explain" }] } } };
    expect(await demo.rest("GET", "/api/v2/auth?explain=true")).toMatchObject(refused);
    expect(await ask("logs/lines?explain=yes", lines())).toMatchObject(refused);
    expect((await ask("logs/lines?explain=false", lines())).status).toBe(200);
    expect(operations.filter(({ isExplainable: explains }) => explains).map(({ name }) => name)).toEqual([
      "logs.lines",
      "logs.counts",
      "tracing.traces_performance",
      "tracing.traces_errors",
      "tracing.actions",
      "tracing.action_edges",
      "tracing.site_edges",
      "tracing.slow_events",
      "tracing.slow_event_actions",
      "metrics.timeseries",
      "metrics.list",
    ]);
  });
});

test.each([
  "",
  "checkout",
  "tag.plan=pro checkout",
  '"a=b" OR "say \\"hi\\""',
  '(tag.a\\.b:x OR namespace!=web) revision!:1 OR tag.x.y="two words"',
  'tag.q="" (span_id=1 OR (trace_id=2 site_id=s))',
])("printing a trace query keeps its meaning: %s", (query) => {
  const bare = (filter: unknown) =>
    JSON.parse(JSON.stringify(filter, (key, value) => (key === "span" ? undefined : value)));
  const filter = parseTraceQuery(query);
  expect(bare(parseTraceQuery(printTraceQuery(filter)))).toEqual(bare(filter));
});

describe("readout explain", () => {
  test("prints repeated values in full, without YAML anchors", () => {
    const parameters = { ignore_unavailable: "true" };
    expect(printYaml({ requests: [{ parameters }, { parameters }] }, new Set(["parameters"]))).toBe(
      'requests:\n  - parameters: {"ignore_unavailable": "true"}\n  - parameters: {"ignore_unavailable": "true"}\n',
    );
  });
  const file = `
backends: { mem: { kind: memory } }
sites:
  demo-shop:
    logs: { backend: mem, sources: { app: { index: demo-shop-app }, nginx: { index: demo-shop-nginx } } }
    traces: { backend: mem, index: demo-shop-traces }
    metrics: { backend: mem, match: { site: demo-shop } }
`;
  const kinds = [memory as BackendKind<unknown>];
  const explain = async (...args: string[]) => {
    const shell = createShell({ now: fromMillis(clock), files: { "readout.yaml": file }, kinds });
    const code = await run(args, shell);
    return { code, out: shell.printed(), err: shell.complained() };
  };

  const complain = async (elk: string) => {
    const text = `backends: { elk: ${elk} }
sites: { s: { logs: { backend: elk, sources: { a: { index: "x-*" } } } } }`;
    const shell = createShell({
      now: fromMillis(clock),
      files: { "readout.yaml": text },
      kinds: [elasticKind as BackendKind<unknown>],
    });
    expect(await run(["--site", "s", "a=1"], shell)).toBe(1);
    return shell.complained();
  };

  test("prints the explanation of a log query", async () => {
    const range = ["--from", "10m", "--to", "2026-01-15T12:00:00Z"];
    const { code, out, err } = await explain(
      "--site",
      "demo-shop",
      "--source",
      "app",
      "severity=error",
      ...range,
    );
    expect([code, err]).toEqual([0, ""]);
    expect(out.replaceAll(/((?:documents|kept|rows|_ms)"?): [\d.]+/g, "$1: N")).toBe(`query: severity=error
means: severity=error
range: {"from": "2026-01-15T11:50:00.000Z", "to": "2026-01-15T12:00:00.000999999Z"}
order: DESC
per_page: 100
document_limit: 500000
backend: mem
sources:
  - source_id: app
    index: demo-shop-app
    layout: memory
    indices: ["demo-shop-app"]
    leaves:
      - leaf: severity=error
        by: documents
        why: there is no index
    notes:
      - lines are kept in memory, and each of the range is looked at
answer: {"rows": N}
read:
  - source_id: app
    documents: N
    kept: N
requests: []
more_requests: 0
time: {"plan_ms": N, "run_ms": N, "sources_ms": N}
`);
  });

  test("prints explanations of traces and metrics, also as JSON", async () => {
    const traces = await explain("traces", "--site", "demo-shop", "--errors", "--by", "duration", "--json");
    expect(JSON.parse(traces.out)).toMatchObject({ candidates: "errors", by: "duration", per_page: 25 });
    const metrics = await explain(
      "metrics",
      "--site",
      "demo-shop",
      "--name",
      "transaction_duration",
      "--field",
      "mean",
      "--tag",
      "action=*",
      "--json",
    );
    expect(JSON.parse(metrics.out)).toMatchObject({
      range: { from: "2026-01-15T11:00:00.000Z", to: "2026-01-15T12:00:00.000999999Z" },
      selectors: [{ tags: { action: "*" }, field: "mean" }],
    });
  });

  test("exits with an error when the backend does not answer", async () => {
    expect(await complain(`{ kind: elastic, url: "http://127.0.0.1:1" }`)).toMatch(
      /^elk: unreachable: .*\n$/,
    );
  });

  test("exits with an error when a certificate file cannot be read", async () => {
    expect(await complain(`{ kind: elastic, url: "https://127.0.0.1:1", tls: { ca: none.pem } }`)).toBe(
      "readout.yaml:1: backends.elk.tls.ca: none.pem cannot be read (ENOENT)\n",
    );
  });

  test.each([
    ["a query that cannot be read", ["--site", "demo-shop", "a= b"], 1, /\n {2}a= b\n {4}\^\n$/],
    ["an unknown site", ["--site", "x"], 1, /no site is called "x"; there are demo-shop/],
    ["an unknown source", ["--site", "demo-shop", "--source", "x"], 1, /no log source "x"/],
    [
      "an unknown file",
      ["--site", "demo-shop", "--config", "x.yaml"],
      1,
      /x\.yaml: cannot be read \(ENOENT\)/,
    ],
    ["no site", [], 2, /--site is missing/],
    ["two queries", ["--site", "s", "a", "b"], 2, /put it in quotes/],
    ["a metric without its name", ["metrics", "--site", "s"], 2, /--name and --field are missing/],
    ["an option of traces", ["--site", "s", "--errors", "a"], 2, /--errors is no option of logs/],
    ["an option of logs", ["metrics", "--site", "s", "--legacy"], 2, /--legacy is no option of metrics/],
    ["an option that there is not", ["--sites", "s"], 2, /--sites/],
  ])("rejects the command line: %s", async (_, args, code, complaint) => {
    const told = await explain(...args);
    expect([told.code, told.out]).toEqual([code, ""]);
    expect(told.err).toMatch(complaint);
  });
});
