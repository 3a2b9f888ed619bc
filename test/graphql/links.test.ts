// Links: what they answer, checked against the routes, and how often they ask a source.
import { afterAll, describe, expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { matches } from "#src/log-query/matches.ts";
import type { Backend } from "#src/store/backend.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createCallLog } from "../support/call-log.ts";
import { clock, createDemo } from "../support/demo-server.ts";

const { asked, counted } = createCallLog();
const watch = (backend: Backend): Backend => {
  const { logs, traces, kubernetes } = backend.stores;
  if (logs === undefined || traces === undefined || kubernetes === undefined) throw new Error("no stores");
  return {
    ...backend,
    stores: {
      ...backend.stores,
      logs: { lines: counted("logs.lines", logs.lines) },
      traces: {
        ...traces,
        find: counted("traces.find", traces.find),
        scan: counted("traces.scan", traces.scan),
        summaries: counted("traces.summaries", traces.summaries),
      },
      kubernetes: { ...kubernetes, pods: counted("kubernetes.pods", kubernetes.pods) },
    },
  };
};
const demo = await createDemo({ watch });
afterAll(() => demo.close());

const page = `site_id: "demo-shop", source_ids: ["app"], use_expressions: true, pagination: { per_page: 10, order: DESC }`;
interface Line {
  readonly id: string;
  readonly json: string;
  readonly timestamp: string;
}
interface Linked extends Line {
  readonly trace: { trace_id: string; spans: { span_id: string }[]; log_lines: Linked[] } | null;
  readonly pod: { pod_name: string; timestamp: string; log_lines: Line[]; cpu: unknown[] } | null;
}

async function ask(query: string) {
  asked.length = 0;
  const { data, errors } = await demo.graphql(query);
  expect(errors).toBeUndefined();
  return data as Record<string, unknown>;
}

describe("log line → trace → spans, log lines → pod", () => {
  test("each level is one request to each source, and rows are those of the routes", async () => {
    const data = await ask(`{
      logs_lines(${page}, query: "trace_id:a") {
        id json timestamp
        trace { trace_id spans { span_id } log_lines { id pod { pod_name } } }
        pod { pod_name timestamp log_lines(limit: 3) { id json timestamp } cpu(minutes: 5) { timestamp cpu_usage_nano_cores } }
      }
    }`);
    const lines = data.logs_lines as Linked[];
    expect(lines).toHaveLength(10);
    // The listing, then one for the lines of all traces and one for those of all pods, or one for both.
    expect([2, 3]).toContain(asked.filter((name) => name === "logs.lines").length);
    expect(asked.filter((name) => name === "traces.find")).toHaveLength(1);
    // The pods of the lines, the pods of the traces' lines, and the CPU of the former.
    expect(asked.filter((name) => name === "kubernetes.pods")).toHaveLength(3);
    let spans = 0;
    for (const line of lines) {
      const { trace_id, ...body } = JSON.parse(line.json);
      expect(line.trace?.trace_id).toBe(trace_id);
      const route = await demo.rest("POST", "/api/v2/tracing/trace", { site_ids: ["demo-shop"], trace_id });
      expect(line.trace?.spans).toEqual(
        (route.body as { span_id: string }[]).map(({ span_id }) => ({ span_id })),
      );
      spans += line.trace?.spans.length ?? 0;
      expect(line.trace?.log_lines.map(({ id }) => id)).toContain(line.id);
      expect(line.pod?.pod_name).toBe(body["k8s.pod.name"]);
      expect(line.pod?.cpu).toHaveLength(5);
      for (const own of line.pod?.log_lines ?? []) {
        expect(JSON.parse(own.json)["k8s.pod.name"]).toBe(line.pod?.pod_name);
        const before = Date.parse(line.pod?.timestamp ?? "") - Date.parse(own.timestamp);
        expect(before).toBeGreaterThanOrEqual(0);
        expect(before).toBeLessThanOrEqual(60_000);
      }
    }
    expect(spans).toBeGreaterThan(20);
  });

  test("a line's answer does not depend on the lines beside it", async () => {
    const query = (n: number) =>
      `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], use_expressions: true, query: "trace_id:a",
          pagination: { per_page: ${n}, order: DESC }) {
          id trace { log_lines(limit: 2) { id } } pod { cpu(minutes: 2) { timestamp } log_lines(limit: 2) { id } } } }`;
    const [alone] = (await ask(query(1))).logs_lines as unknown[];
    const [first] = (await ask(query(20))).logs_lines as unknown[];
    expect(first).toEqual(alone);
  });

  test("a line without a trace or a pod has none", async () => {
    const data = await ask(`{
      logs_lines(site_id: "demo-shop", source_ids: ["nginx"], query: "",
        pagination: { per_page: 5, order: DESC }) { json trace { trace_id } pod { pod_name } }
    }`);
    for (const line of data.logs_lines as Linked[]) {
      const body = JSON.parse(line.json);
      expect(line.trace === null).toBe(body.trace_id === undefined);
      expect(line.pod === null).toBe(body["k8s.pod.name"] === undefined);
    }
  });
});

test("site → actions → their requests: one listing for all actions", async () => {
  const data = await ask(`{
    site(id: "demo-shop") {
      sources metric_names
      actions(from: "2026-01-15T11:00:00Z", to: "2026-01-15T12:00:00Z") {
        namespace action throughput traces(limit: 2) { namespace action_name time trace { trace_id spans { span_id } } }
      }
    }
  }`);
  const site = data.site as {
    sources: string[];
    metric_names: string[];
    actions: {
      namespace: string;
      action: string;
      throughput: number;
      traces: { namespace: string; action_name: string; time: string; trace: { spans: unknown[] } }[];
    }[];
  };
  expect(site.sources).toEqual(["app", "nginx", "worker"]);
  const names = await demo.rest("GET", "/api/v2/metrics/names/demo-shop");
  // The site of the test has what the demo's configuration gives it.
  expect(site.metric_names).toEqual(names.status === 200 ? names.body : null);
  expect(asked.filter((name) => name === "traces.summaries")).toHaveLength(1);
  expect(asked.filter((name) => name === "traces.find")).toHaveLength(1);
  expect(site.actions.length).toBeGreaterThan(2);
  for (const { namespace, action, traces } of site.actions) {
    const listing = await demo.rest("POST", "/api/v2/tracing/traces/performance", {
      site_ids: ["demo-shop"],
      namespace,
      action_name: action,
      from: "2026-01-15T11:00:00Z",
      to: "2026-01-15T12:00:00Z",
      pagination: { per_page: 2 },
    });
    const newest = (listing.body as { time: string }[]).slice(0, 2).map(({ time }) => time);
    // Also of what is always below another action's request.
    expect([action, traces.map(({ time }) => time)]).toEqual([action, newest]);
    for (const row of traces) {
      expect([row.namespace, row.action_name]).toEqual([namespace, action]);
      expect(row.trace.spans.length).toBeGreaterThan(0);
    }
  }
});

test("actions → their slow events, their durations: one scan for all actions", {
  timeout: 30_000,
}, async () => {
  const query = { site_id: "demo-shop", from: "2026-01-15T11:02:00Z", to: "2026-01-15T12:00:00Z" };
  const data = await ask(`{
    site(id: "demo-shop") {
      actions(from: "${query.from}", to: "${query.to}") {
        namespace action throughput mean
        slow_events(limit: 3) { digest count impact }
        durations(minutes: 10) { timestamp throughput mean }
      }
    }
  }`);
  const { actions } = data.site as {
    actions: {
      namespace: string;
      action: string;
      throughput: number;
      mean: number;
      slow_events: { digest: string; count: number; impact: number }[];
      durations: { timestamp: string; throughput: number; mean: number | null }[];
    }[];
  };
  // One for each of the two links; those within `actions` itself are not seen from here.
  expect(asked.filter((name) => name === "traces.scan")).toHaveLength(2);
  expect(actions.length).toBeGreaterThan(2);
  let events = 0;
  for (const { namespace, action, throughput, mean, slow_events, durations } of actions) {
    expect(durations.map(({ timestamp }) => timestamp.slice(11, 16))).toEqual([
      "11:00",
      "11:10",
      "11:20",
      "11:30",
      "11:40",
      "11:50",
      "12:00",
    ]);
    const points = durations.filter((point) => point.throughput > 0);
    expect(points.reduce((sum, point) => sum + point.throughput, 0)).toBe(throughput);
    const total = points.reduce((sum, point) => sum + point.throughput * (point.mean ?? Number.NaN), 0);
    expect(total / throughput).toBeCloseTo(mean, 6);
    for (const { digest, count, impact } of slow_events) {
      events += 1;
      expect(impact).toBeGreaterThan(0);
      const rows = (await demo.rest("POST", "/api/v2/tracing/slow_events/actions", { ...query, digest }))
        .body;
      expect(rows).toContainEqual(expect.objectContaining({ namespace, action_name: action, count }));
    }
  }
  expect(events).toBeGreaterThan(3);
});

test("errors → the exceptions of their spans: one request for all rows", async () => {
  const range = { from: "2026-01-15T10:00:00Z", to: "2026-01-15T12:00:00Z" };
  const data = await ask(`{
    tracing_traces_errors(site_ids: ["demo-shop"], from: "${range.from}", to: "${range.to}", pagination: { per_page: 20 }) {
      trace_id span_id exceptions { digest name message stacktrace }
    }
  }`);
  expect(asked.filter((name) => name === "traces.find")).toHaveLength(1);
  const rows = data.tracing_traces_errors as {
    trace_id: string;
    span_id: string;
    exceptions: { digest: string; name: string; message: string | null; stacktrace: string | null }[];
  }[];
  expect(rows.length).toBeGreaterThanOrEqual(20);
  for (const { trace_id, span_id, exceptions } of rows) {
    const body = { site_ids: ["demo-shop"], trace_id };
    const trace = await demo.rest("POST", "/api/v2/tracing/trace", body);
    const span = (trace.body as Record<string, unknown>[]).find((one) => one.span_id === span_id);
    const attributes = (span?.["events.attributes"] ?? []) as Record<string, string>[];
    const recorded = attributes.filter((one) => "exception.type" in one);
    expect(exceptions.map(({ name, message, stacktrace }) => [name, message, stacktrace])).toEqual(
      recorded.map((one) => [
        one["exception.type"],
        one["exception.message"] ?? null,
        one["exception.stacktrace"] ?? null,
      ]),
    );
    // The digest leads back to the row.
    const digests = [exceptions[0]?.digest];
    const found = await demo.rest("POST", "/api/v2/tracing/traces/errors", {
      ...range,
      site_ids: ["demo-shop"],
      query: `trace_id=${trace_id}`,
      digests,
      pagination: { per_page: 1 },
    });
    expect(found.body).toEqual([expect.objectContaining({ trace_id, span_id })]);
  }
});

test("links of the largest page take few places at once, and none is refused for those of the others", {
  timeout: 30_000,
}, async () => {
  let [open, most] = [0, 0];
  const rows = 10_000;
  const lines: LogStore["lines"] = async function* ({ sources: [{ id: source_id }], order }) {
    if (order === "desc") {
      const traced = (n: number): LogLine => ({
        id: `l${n}`,
        time: fromMillis(clock - n),
        source_id,
        severity: "info",
        json: `{"trace_id":"${n.toString(16).padStart(32, "0")}"}`,
      });
      yield Array.from({ length: rows }, (_, n) => traced(n));
      return;
    }
    open += 1;
    most = Math.max(most, open);
    await new Promise((resolve) => setTimeout(resolve, 5));
    open -= 1;
  };
  const slow = await createDemo({
    site: (site) => ({ ...site, ...(site.logs && { logs: { ...site.logs, store: { lines } } }) }),
  });
  const { data, errors } = await slow.graphql(`{
    logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: ${rows}, order: DESC }) {
      trace { log_lines { id } }
    }
  }`);
  expect(errors).toBeUndefined();
  expect(data?.logs_lines).toHaveLength(rows);
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThanOrEqual(8);
  await slow.close();
});

test("a line names its trace in the spelling of whoever wrote it", async () => {
  const [from, to] = [clock - 600_000, clock].map((millis) => new Date(millis).toISOString());
  const query = { site_ids: ["demo-shop"], from, to, pagination: { per_page: 1, order: "DESC" } };
  const { body } = await demo.rest("POST", "/api/v2/tracing/traces/performance", query);
  const [{ trace_id }] = body as [{ readonly trace_id: string }];
  const lines: LogStore["lines"] = async function* () {
    yield [trace_id, trace_id.toUpperCase()].map((spelled, n) => ({
      id: `l${n}`,
      time: fromMillis(clock - n),
      source_id: "app",
      severity: "info" as const,
      json: JSON.stringify({ trace_id: spelled }),
    }));
  };
  const own = await createDemo({
    site: (site) => ({ ...site, ...(site.logs && { logs: { ...site.logs, store: { lines } } }) }),
  });
  const { data, errors } = await own.graphql(`{
    logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: 2, order: DESC }) {
      trace { spans { span_id } }
    }
  }`);
  expect(errors).toBeUndefined();
  const [first, second] = (data?.logs_lines ?? []) as { trace: { spans: unknown[] } }[];
  expect(first?.trace.spans).not.toEqual([]);
  expect(second?.trace.spans).toEqual(first?.trace.spans);
  await own.close();
});

test("lines belong to a trace however they spell its id", async () => {
  const half = "00f067aa0ba902b7";
  const id = half.padStart(32, "0");
  const ids = [
    half,
    half.toUpperCase(),
    id,
    id.toUpperCase(),
    "00f067AA0ba902b7".padStart(32, "0"),
    "00f067AA0ba902b7",
  ];
  const found: string[] = [];
  const lines: LogStore["lines"] = async function* ({ filter, order }) {
    const own = ids.map((spelled, n) => ({
      id: `l${n}`,
      time: fromMillis(clock + n),
      source_id: "app",
      severity: "info" as const,
      json: JSON.stringify({ trace: { id: spelled } }),
    }));
    if (order === "asc") found.push(...own.filter((line) => matches(filter, line)).map((line) => line.id));
    yield own;
  };
  const own = await createDemo({
    site: (site) => ({ ...site, ...(site.logs && { logs: { ...site.logs, store: { lines } } }) }),
  });
  const ask = (n: number) =>
    own.graphql(`{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "",
      pagination: { per_page: ${n}, order: DESC }) { trace { trace_id log_lines { id } } } }`);
  const { data, errors } = await ask(1);
  expect(errors).toBeUndefined();
  // Fewer digits in mixed case are another id.
  const same = ["l0", "l1", "l2", "l3", "l4"].map((id) => ({ id }));
  expect(data?.logs_lines).toEqual([{ trace: { trace_id: half, log_lines: same } }]);
  expect(found).toEqual(["l0", "l1", "l2", "l3"]);
  const other = (await ask(6)).data?.logs_lines as readonly Linked[];
  expect(other.map((line) => line.trace?.log_lines.length)).toEqual([5, 5, 5, 5, 5, 1]);
  expect(found.slice(4)).toEqual(["l0", "l1", "l2", "l3", "l4", "l5"]);
  await own.close();
});

test("rows of links count among those of the request, also where many share them", async () => {
  const lines: LogStore["lines"] = async function* () {
    yield Array.from({ length: 100 }, (_, n) => ({
      id: `l${n}`,
      time: fromMillis(clock - n),
      source_id: "app",
      severity: "info" as const,
      json: `{"trace_id":"${"a".repeat(32)}"}`,
    }));
  };
  const small = await createDemo({
    limits: { rows: 5_000 },
    site: (site) => ({ ...site, ...(site.logs && { logs: { ...site.logs, store: { lines } } }) }),
  });
  const page = (limit: number) =>
    small.graphql(`{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "",
      pagination: { per_page: 100, order: DESC }) { trace { log_lines(limit: ${limit}) { id } } } }`);
  expect((await page(49)).errors).toBeUndefined();
  const { errors } = await page(50);
  expect(errors?.length).toBeGreaterThan(0);
  for (const { extensions } of errors ?? []) {
    expect(extensions).toMatchObject({
      status: 422,
      slug: "result_too_large",
      details: { limit: 5_000 },
    });
  }
  await small.close();
});

test("wrong arguments of a link are refused as those of a route are, and the rows stay", async () => {
  const { data, errors } = await demo.graphql(`{
    logs_lines(${page}, query: "trace_id:a") { id pod { cpu(minutes: 0) { timestamp } log_lines(limit: 1001) { id } } }
  }`);
  expect(data?.logs_lines).toHaveLength(10);
  for (const { extensions } of errors ?? []) {
    expect(extensions).toMatchObject({ status: 422, slug: "invalid_request" });
  }
  expect(errors).toHaveLength(20);
});

test("a site without the other part has no link into it", async () => {
  const bare = await createDemo({
    site: ({ kubernetes, traces, reports, ...site }) => site,
  });
  const { data, errors } = await bare.graphql(
    `{ logs_lines(${page}, query: "trace_id:a") { trace { spans { span_id } } pod { pod_name } } }`,
  );
  expect(errors).toBeUndefined();
  for (const line of (data?.logs_lines ?? []) as Linked[])
    expect(line).toEqual({ trace: { spans: null }, pod: null });
  await bare.close();
});
