// Answers that lack what a failed cluster holds: whoever asks for one gets what the site would answer if that cluster held
// nothing, and is told so. Nobody else ever does, and nothing of it is remembered.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { kinds } from "#resolvers/index.ts";
import { connectSites } from "#src/access/sites.ts";
import type { AuditEntry, AuditLog } from "#src/audit/audit-log.ts";
import { parseConfig } from "#src/config/config.ts";
import type { Limits } from "#src/config/limits.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import { base as midnight, minute, model } from "../conformance/kubernetes-fixture.ts";
import { observeModel } from "../conformance/observed-cluster.ts";
import { hex, request } from "../operations/trace-harness.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { base as spanBase } from "../tracing/span-builder.ts";
import { base, createSubject, token } from "../wire/harness.ts";
import { type Cluster, type Fault, openCluster } from "./failing-clusters.ts";

const site = `
    logs:
      sources:
        app: { backends: [{ backend: old, index: app }, { backend: new, index: app }] }
        copies: { dedupe: id, backends: [{ backend: old, index: copies }, { backend: new, index: copies }] }
        audit: { backend: old, index: audit }
    traces: [{ backend: old, index: spans }, { backend: new, index: spans }]
    metrics: [{ backend: old }, { backend: new }]
    kubernetes: [{ backend: old }, { backend: new }]
`;
const config = `
backends:
  old: { kind: memory, label: eu }
  new: { kind: memory }
sites:
  shop:
    partial: true${site}`;
/** A site that allows no partial answers beside it: their spans are partners. */
const mixed = `${config}  bare:${site}`;

/** Which cluster holds what: a bit for each line, span and sample in turn. */
type Split = readonly boolean[];

/** Clusters of which those in `empty` hold nothing. */
function openClusters(split: Split, empty: readonly string[] = []) {
  const isEven = ({ length }: string) => length % 2 === 0;
  const observe = (name: string, isOwn: (pod: string) => boolean) => (match: unknown, time: number) => {
    if (empty.includes(name) || match === undefined) return undefined;
    const { nodes, pods } = observeModel(model, time);
    return {
      nodes: nodes.filter(({ node_name }) => isOwn(node_name)),
      pods: pods.filter(({ pod_name }) => isOwn(pod_name)),
    };
  };
  const old = openCluster("old", observe("old", isEven));
  const next = openCluster(
    "new",
    observe("new", (pod) => !isEven(pod)),
  );
  for (const [n, isNew] of split.entries()) {
    const name = isNew ? "new" : "old";
    if (empty.includes(name)) continue;
    fill(isNew ? next : old, n);
  }
  return { old, next };
}

function fill({ logs, traces, metrics }: Cluster, n: number): void {
  const time = (fromMillis(base) + BigInt(n) * 1_000_000n) as Instant;
  const line = { time, severity: "info", message: `line ${n}`, json: "{}" } as const;
  for (const index of ["app", "copies", "audit"]) logs.add(index, [{ ...line, id: `${index}/${n}` }]);
  const trace_id = hex("a", 30) + (n + 16).toString(16);
  const span = request({ trace_id, from: n * 1_000, to: n * 1_000 + 10, span_name: `GET /${n % 3}` });
  traces.add("spans", [span]);
  metrics.append("gauge", "gauge", "value", { host: `h${n}` })(base + n * 1_000, n);
}

function serve(
  { old, next }: ReturnType<typeof openClusters>,
  text = config,
  { audit, limits }: { readonly audit?: AuditLog; readonly limits?: Partial<Limits> } = {},
) {
  const parsed = parseConfig(text, "readout.yaml", { kinds, env: {}, readText: () => "" });
  const backends = new Map([old, next].map(({ backend }) => [backend.name, backend]));
  const { server } = createSubject({
    served: { sites: connectSites(parsed, backends) },
    ...(audit && { audit }),
    ...(limits && { limits }),
  });
  const ask = async (path: string, body: object | undefined, accept: string) => {
    const response = await server.fetch(`http://readout/api/v2/${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, accept, "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
    const { status, headers } = response;
    const text = await response.text();
    return {
      status,
      missing: headers.get("x-readout-missing"),
      vary: headers.get("vary"),
      body: text.startsWith("{") || text.startsWith("[") ? JSON.parse(text) : text,
    };
  };
  return { server, ask };
}

const strict = "application/json";
const glance = "application/json; partial=allow";
const range = { from: new Date(base - 60_000).toISOString(), to: new Date(base + 60_000).toISOString() };
const spans = { from: new Date(spanBase).toISOString(), to: new Date(spanBase + 3_600_000).toISOString() };
const snapshots = {
  from: new Date(midnight).toISOString(),
  to: new Date(midnight + 10 * minute).toISOString(),
};
const page = { per_page: 5, order: "ASC", cursor: { time: null } };

type Question = readonly [path: string, body: object | undefined];

function listQuestions(site_id: string): readonly Question[] {
  const lines = { site_id, source_ids: ["app", "copies", "audit"], query: "", ...range };
  return [
    ["logs/lines", { ...lines, pagination: page }],
    ["logs/lines", { ...lines, source_ids: ["app"], pagination: page }],
    [
      "tracing/traces/performance",
      { site_ids: [site_id], ...spans, pagination: { ...page, cursor: "Time" } },
    ],
    ["tracing/traces/errors", { site_ids: [site_id], ...spans, pagination: page }],
    ["tracing/actions", { site_id, ...spans }],
    ["tracing/site_edges", { site_id, ...spans }],
    ["tracing/action_edges", { site_id, ...spans, namespace: "a/web", action: "GET /0" }],
    ["tracing/slow_events", { site_id, ...spans }],
    [
      "metrics/timeseries",
      { site_id, ...range, select: [{ name: "gauge", field: "gauge", tags: { host: "*" } }] },
    ],
    [
      "metrics/list",
      {
        site_id,
        ...range,
        select: [{ id: "value", name: "gauge", field: "gauge", tags: { host: "*" } }],
        group_by: [{ Tag: "host" }],
      },
    ],
    [`metrics/names/${site_id}`, undefined],
    ["kubernetes/nodes", { site_id, ...snapshots }],
    ["kubernetes/pods", { site_id, ...snapshots }],
    ["kubernetes/pods/overview", { site_id, ...snapshots }],
  ];
}

const fault = fc.record<Fault>({
  after: fc.nat(4),
  delay: fc.constantFrom(0, 0, 3),
  failure: fc.constantFrom("unreachable", "timeout", "partial"),
});

describe("a cluster that fails at any step", () => {
  test("is missing from the answers of those who ask for what is there, and fails all others", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.boolean(), { minLength: 4, maxLength: 20 }),
        fc.constantFrom("old", "new"),
        fault,
        fc.nat(),
        async (split, failing, own, chosen) => {
          const clusters = openClusters(split);
          const dying = failing === "old" ? clusters.old : clusters.next;
          const { ask } = serve(clusters);
          const { ask: askRest } = serve(openClusters(split, [failing]));
          const { ask: askWhole } = serve(openClusters(split));
          const questions = listQuestions("shop");
          const [path, body] = questions[chosen % questions.length] ?? ["", undefined];
          const whole = await askWhole(path, body, strict);
          expect(whole, path).toMatchObject({ status: 200, missing: null });
          dying.fail(own);
          const partial = await ask(path, body, glance);
          dying.fail(own);
          const exact = await ask(path, body, strict);
          // The failure may lie behind what an answer needs.
          if (partial.missing === null) expect(partial.body).toEqual(whole.body);
          else {
            const { body: rest } = await askRest(path, body, strict);
            expect(partial, path).toMatchObject({ status: 200, missing: failing === "old" ? "eu" : "new" });
            expect(partial.vary).toBe("Accept");
            expect(partial.body, path).toEqual(rest);
          }
          expect(exact.status, path).toBe(partial.missing === null ? 200 : 500);
          expect(exact.missing).toBeNull();
          dying.fail(undefined);
          expect(await ask(path, body, glance), path).toMatchObject({ missing: null, body: whole.body });
        },
      ),
      { numRuns: sampleRuns(300) },
    );
  });
});

const dead: Fault = { after: 0, delay: 0, failure: "unreachable" };
const everywhere: Split = [true, false, true, false, true, false, true, false];

describe("an answer is whole or fails", () => {
  const lines = { site_id: "shop", source_ids: ["app"], query: "", ...range };
  const traceId = hex("a", 30) + (16).toString(16);
  const trace = { site_ids: ["shop"], trace_id: traceId };
  const behind = (cursor: object) => ({ site_ids: ["shop"], ...spans, pagination: { ...page, cursor } });
  const questions: readonly { told: string; question: Question; accept?: string }[] = [
    {
      told: "a page behind a cursor",
      question: ["logs/lines", { ...lines, pagination: { ...page, cursor: { time: range.from } } }],
    },
    {
      told: "a later page of traces",
      question: ["tracing/traces/performance", behind({ time: spans.from })],
    },
    { told: "a later page by duration", question: ["tracing/traces/performance", behind({ duration: 1 })] },
    { told: "counts", question: ["logs/counts", lines] },
    {
      told: "an export",
      question: ["logs/lines", { ...lines, pagination: page }],
      accept: "application/x-ndjson; partial=allow, application/json; partial=allow;q=0.1",
    },
    { told: "a trace", question: ["tracing/trace", trace] },
    { told: "a performance trace", question: ["tracing/trace/performance", trace] },
    { told: "an error trace", question: ["tracing/trace/error", trace] },
    { told: "where a trace is", question: ["tracing/locator", trace] },
    { told: "what a metric is", question: ["metrics/type_and_tags/shop/gauge", undefined] },
    { told: "a revision", question: ["deploys/stats", { site_id: "shop", revision: "1" }] },
    {
      told: "a source of which nothing is left",
      question: ["logs/lines", { ...lines, source_ids: ["audit"], pagination: page }],
    },
  ];

  test.each(questions)("$told", async ({ question: [path, body], accept = glance }) => {
    const clusters = openClusters(everywhere);
    const { ask } = serve(clusters);
    clusters.old.fail(dead);
    expect(await ask(path, body, accept)).toMatchObject({ status: 500, missing: null });
  });

  test("of a site that allows no partial answers, and of one whose partner allows none", async () => {
    const clusters = openClusters(everywhere);
    const { ask } = serve(clusters, mixed);
    clusters.old.fail(dead);
    const edges = ["tracing/site_edges", { site_id: "shop", ...spans }] as const;
    for (const [path, body] of [...listQuestions("bare"), edges])
      expect(await ask(path, body, glance), path).toMatchObject({ status: 500, missing: null });
  });

  test("to a client that refuses them", async () => {
    const clusters = openClusters(everywhere);
    const { ask } = serve(clusters);
    clusters.old.fail(dead);
    for (const [path, body] of listQuestions("shop"))
      expect(await ask(path, body, `${glance};q=0`), path).toMatchObject({ status: 500, missing: null });
  });

  test("where all clusters fail", async () => {
    const clusters = openClusters(everywhere);
    const { ask } = serve(clusters);
    clusters.old.fail(dead);
    clusters.next.fail({ ...dead, failure: "timeout" });
    for (const [path, body] of listQuestions("shop"))
      expect(await ask(path, body, glance), path).toMatchObject({ status: 500, missing: null });
  });

  test("a tail, which goes on with all lines when the cluster is back", async () => {
    const clusters = openClusters(everywhere);
    const { server } = serve(clusters);
    const response = await server.fetch("http://readout/api/v2/logs/lines", {
      method: "POST",
      headers: {
        authorization: `Bearer ${token}`,
        accept: `text/event-stream; partial=allow, ${glance};q=0.1`,
        "content-type": "application/json",
      },
      body: JSON.stringify({
        ...lines,
        from: new Date(base + 59_000).toISOString(),
        to: undefined,
        pagination: page,
      }),
    });
    expect([response.status, response.headers.get("x-readout-missing")]).toEqual([200, null]);
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let seen = "";
    const listIds = () => [...seen.matchAll(/"id":"([^"]+)"/g)].map(([, id]) => id);
    const reading = (async () => {
      for (let part = await reader?.read(); part?.done === false; part = await reader?.read())
        seen += part.value;
    })();
    // The server's clock stands still here.
    const time = fromMillis(base + 60_000);
    const line = { severity: "info", message: "late", json: "{}" } as const;
    let asked = 0;
    clusters.old.fail({ ...dead, told: () => (asked += 1) });
    clusters.next.logs.add("app", [{ ...line, id: "of-the-one-that-answers", time }]);
    await expect.poll(() => asked).toBeGreaterThan(1);
    expect(listIds()).toEqual([]);
    clusters.old.logs.add("app", [{ ...line, id: "of-the-dead-one", time: (time - 1n) as Instant }]);
    clusters.old.fail(undefined);
    await expect.poll(listIds).toHaveLength(2);
    expect(listIds().map((id) => id?.replace(/^.*:/, ""))).toEqual([
      "of-the-dead-one",
      "new|of-the-one-that-answers",
    ]);
    await reader?.cancel();
    await reading;
  });

  test("for agents", async () => {
    const clusters = openClusters(everywhere);
    const { server } = serve(clusters);
    clusters.old.fail(dead);
    const call = { name: "get_log_lines", arguments: { app_name: "shop", query: "" } };
    const response = await server.fetch("http://readout/mcp", {
      method: "POST",
      headers: {
        authorization: `Bearer ${token}`,
        accept: `${glance}, text/event-stream`,
        "content-type": "application/json",
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: call }),
    });
    expect(await response.text()).toContain("cannot be reached");
  });
});

describe("GraphQL", () => {
  const selection = `site_id: "shop", from: "${spans.from}", to: "${spans.to}"`;
  const query = `{ glance: tracing_actions(${selection}) @partial { action } whole: tracing_actions(${selection}) { action } }`;

  test("answers a field with @partial, and an error beside it, and no other field", async () => {
    const clusters = openClusters(everywhere);
    const { server } = serve(clusters);
    const ask = async () => {
      const response = await server.fetch("http://readout/graphql", {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ query }),
      });
      return { status: response.status, ...((await response.json()) as object) };
    };
    const whole = await ask();
    expect(whole).toMatchObject({ status: 200, data: { glance: { length: 3 }, whole: { length: 3 } } });
    expect(whole).not.toHaveProperty("errors");
    clusters.old.fail(dead);
    expect(await ask()).toEqual({
      status: 200,
      data: { glance: expect.arrayContaining([{ action: "GET /0" }]), whole: null },
      errors: [
        expect.objectContaining({ path: ["whole"], extensions: { status: 500 } }),
        expect.objectContaining({ path: ["glance"], extensions: { missing: ["eu"] } }),
      ],
    });
    clusters.old.fail(undefined);
    expect(await ask()).toEqual(whole);
  });

  test("tells the audit log which operation lacked what", async () => {
    const { entries, audit } = openAudit();
    const clusters = openClusters(everywhere);
    clusters.old.fail(dead);
    const { server } = serve(clusters, config, { audit });
    const response = await server.fetch("http://readout/graphql", {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ query }),
    });
    await response.text();
    const operations = entries.filter(({ event }) => event === "operation");
    expect(operations.map(({ status, missing }) => [status, missing]).sort()).toEqual([
      [200, ["eu"]],
      [500, undefined],
    ]);
  });
});

test("what a failed attempt held is given back before the next one", async () => {
  const clusters = openClusters(everywhere);
  // So many that one has been answered when the last one is asked for.
  const select = Array.from({ length: 9 }, () => ({ name: "gauge", field: "gauge", tags: { host: "h0" } }));
  const hours = 10;
  const from = new Date(base - hours * 3_600_000).toISOString();
  const body = { site_id: "shop", ...range, from, resolution: "MINUTELY", select };
  const bytesPerSeries = 8 * 60 * hours;
  const limits = { heldBytes: (select.length + 0.5) * bytesPerSeries };
  const { ask } = serve(clusters, config, { limits });
  // What the metric is has been told twice, and for each selector but the last it is told before the samples.
  clusters.old.fail({ ...dead, after: 2 * select.length });
  expect(await ask("metrics/timeseries", body, glance)).toMatchObject({ status: 200, missing: "eu" });
});

test("a request that fails lacks nothing in the audit log", async () => {
  const { entries, audit } = openAudit();
  const clusters = openClusters(everywhere);
  const { ask } = serve(clusters, config, { audit });
  const body = { site_id: "shop", source_ids: ["app"], query: "", ...range, pagination: page };
  clusters.old.fail(dead);
  // A value may stand in quotes (RFC 9110, section 5.6.6).
  await ask("logs/lines", body, 'application/json; partial="allow"');
  clusters.next.fail(dead);
  await ask("logs/lines", body, glance);
  expect(entries.map(({ status, missing }) => [status, missing])).toEqual([
    [200, ["eu"]],
    [500, undefined],
  ]);
});

function openAudit() {
  const entries: AuditEntry[] = [];
  const record: AuditLog["record"] = async (entry) => void entries.push(entry);
  return { entries, audit: { ...silentLog, record } };
}

const silentLog: AuditLog = {
  record: async () => undefined,
  start: async () => undefined,
  stop: async () => undefined,
  configure: async () => undefined,
  countRejected: () => undefined,
  reopen: () => undefined,
  close: async () => undefined,
};
