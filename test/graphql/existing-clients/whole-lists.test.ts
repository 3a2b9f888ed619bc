// Lists of existing clients without a limit are whole, or an error; never a part.
import { afterAll, describe, expect, test } from "vitest";
import type { TraceSummary } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { clock, createDemo } from "../../support/demo-server.ts";
import { askApp } from "./ask-app.ts";

let metricNames: readonly string[] = [];

/** Each row of an error is two errors of their own, each request has a revision of its own, and the metrics are those of the test. */
const spread = (backend: Backend): Backend => {
  const { traces, metrics } = backend.stores;
  if (traces === undefined || metrics === undefined) throw new Error("no traces or metrics");
  const spreadRow = (row: TraceSummary): readonly TraceSummary[] => {
    const { exception, span_id } = row;
    if (exception === undefined) return [row];
    return [span_id, `${span_id}.again`].map((span_id) => {
      return { ...row, span_id, exception: { ...exception, digest: `${row.trace_id}:${span_id}` } };
    });
  };
  const scan: SpanReader["scan"] = async function* scan(query, signal) {
    for await (const batch of traces.scan(query, signal))
      yield batch.map((span) => ({ ...span, revision: span.span_id }));
  };
  return {
    ...backend,
    stores: {
      ...backend.stores,
      traces: {
        ...traces,
        async *summaries(query, signal) {
          for await (const batch of traces.summaries(query, signal)) yield batch.flatMap(spreadRow);
        },
        statsOfRevisions: createSpanAnalytics({ ...traces, scan }).statsOfRevisions,
      },
      metrics: {
        ...metrics,
        names: async () => metricNames,
        type: async () => "gauge",
        tagKeys: async (_, metric) => (metric.startsWith("tagged") ? [["host"]] : []),
      },
    },
  };
};
const demo = await createDemo({ watch: spread });
const small = await createDemo({ watch: spread, limits: { rows: 30 } });
afterAll(() => Promise.all([demo.close(), small.close()]));

const ask = (fields: string, of = demo) => askApp(fields, of);

type Rows = readonly { readonly id: string }[];

describe("incidents", () => {
  test("are all listed", async () => {
    const { app, errors } = await ask(
      "exceptionIncidents { id } paginatedExceptionIncidents { total rows { id } } incidents { ... on IncidentInterface { id } } performanceIncidents { id }",
    );
    expect(errors).toEqual([]);
    const page = app.paginatedExceptionIncidents as { readonly total: number; readonly rows: Rows };
    expect(page.total).toBeGreaterThan(50);
    expect(page.rows).toHaveLength(page.total);
    expect(app.exceptionIncidents).toEqual(page.rows);
    expect(app.incidents).toHaveLength(page.total + (app.performanceIncidents as Rows).length);
  });

  test.each([
    "exceptionIncidents { id }",
    "paginatedExceptionIncidents { rows { id } }",
    "incidents { __typename }",
  ])("that are too many are refused, and answered with a limit: %s", async (fields) => {
    const { errors } = await ask(fields, small);
    expect(errors[0]?.extensions).toMatchObject({ slug: "result_too_large", details: { limit: 30 } });
    expect((await ask(fields.replace(" {", "(limit: 5) {"), small)).errors).toEqual([]);
  });

  test("with more samples than a page may have are refused", async () => {
    const { app } = await ask("exceptionIncidents { id }");
    const count = (app.exceptionIncidents as Rows).length;
    const most = Math.floor(100_000 / count);
    expect(most).toBeLessThan(1_000);
    expect((await ask(`exceptionIncidents { samples(limit: ${most}) { id } }`)).errors).toEqual([]);
    const { errors } = await ask(`exceptionIncidents { samples(limit: ${most + 1}) { id } }`);
    expect(errors[0]?.extensions).toMatchObject({ status: 422, details: { issues: [{ path: "limit" }] } });
  });
});

const printSorted = (errors: readonly object[] = []): readonly string[] =>
  errors.map((one) => JSON.stringify(one)).sort();

test("errors whose older messages have a text are those of the list without it", async () => {
  const fields = "{ digests count createdAt lastOccurredAt exceptionMessage actionNames }";
  // Each error has rows before that time and later ones, which say less.
  const old = fromMillis(clock - 30 * 60_000);
  const worded = await createDemo({
    watch: (backend) => {
      const { traces } = backend.stores;
      if (traces === undefined) throw new Error("no traces");
      const word = (row: TraceSummary): TraceSummary => {
        const { exception } = row;
        if (exception === undefined || row.time > old) return row;
        return { ...row, exception: { ...exception, message: `${exception.message} in Needle` } };
      };
      const summaries: typeof traces.summaries = async function* (query, signal) {
        for await (const batch of traces.summaries(query, signal)) yield batch.map(word);
      };
      return { ...backend, stores: { ...backend.stores, traces: { ...traces, summaries } } };
    },
  });
  const { app, errors } = await ask(
    `all: exceptionIncidents ${fields} found: exceptionIncidents(query: "needle") ${fields}
     first: exceptionIncidents(query: "needle", limit: 2) ${fields} none: exceptionIncidents(query: "nowhere") ${fields}`,
    worded,
  );
  expect(errors).toEqual([]);
  const { all, found, first, none } = app as Readonly<Record<string, readonly object[]>>;
  expect(all?.length).toBeGreaterThan(2);
  expect(JSON.stringify(all)).not.toContain("Needle");
  // In the order of the messages that have it.
  expect(printSorted(found)).toEqual(printSorted(all));
  expect(first).toEqual(found?.slice(0, 2));
  expect(none).toEqual([]);
  await worded.close();
});

test("figures and total of a page are those of its range, however long the answer takes", async () => {
  const fields = "(timeframe: R1H, limit: 2, offset: 2) { total rows { digests count createdAt } }";
  let isLate = false;
  let readings = 0;
  const now = () => fromMillis(clock + (isLate ? 600_000 * readings++ : 0));
  const slow = await createDemo({ now });
  const prompt = await ask(`paginatedExceptionIncidents ${fields}`, slow);
  isLate = true;
  expect(await ask(`paginatedExceptionIncidents ${fields}`, slow)).toEqual(prompt);
  expect(prompt.errors).toEqual([]);
  expect(prompt.app).toMatchObject({
    paginatedExceptionIncidents: { total: expect.any(Number), rows: [{}, {}] },
  });
  await slow.close();
});

test("samples of an action are 200", async () => {
  const { app } = await ask("performanceIncidents { count samples { id } }");
  const rows = app.performanceIncidents as readonly { readonly count: number; readonly samples: Rows }[];
  expect(Math.max(...rows.map(({ count }) => count))).toBeGreaterThan(200);
  for (const { count, samples } of rows) expect(samples).toHaveLength(Math.min(200, count));
});

test("markers are 50", async () => {
  const { app } = await ask("markers { __typename } deployMarkers { id }");
  expect(app.markers).toHaveLength(50);
  expect(app.deployMarkers).toHaveLength(25);
});

describe("keys of metrics", () => {
  test("are those of all", async () => {
    metricNames = Array.from({ length: 130 }, (_, n) => `m${n}`);
    const { app, errors } = await ask("metrics { keys { name } }");
    expect(errors).toEqual([]);
    const { keys } = app.metrics as { readonly keys: readonly { readonly name: string }[] };
    expect(keys.map(({ name }) => name).toSorted()).toEqual(metricNames.toSorted());
  });

  test("of too many are refused, and answered with a limit", async () => {
    metricNames = Array.from({ length: 1_001 }, (_, n) => `m${n}`);
    const { errors } = await ask("metrics { keys { name } }");
    expect(errors[0]?.extensions).toMatchObject({
      slug: "result_too_large",
      details: { limit: 1_000, wanted: 1_001 },
    });
    expect((await ask("metrics { keys(limit: 30, offset: 990) { name } }")).errors).toEqual([]);
  });

  test("of a tag are refused if too many metrics have it, however many others there are", async () => {
    const fields = 'metrics { keys(tags: [{ key: "host", value: "" }]) { name } }';
    metricNames = [...Array.from({ length: 1_001 }, (_, n) => `m${n}`), "tagged1", "tagged2"];
    const { app, errors } = await ask(fields);
    expect(errors).toEqual([]);
    expect(app.metrics).toEqual({ keys: [{ name: "tagged1" }, { name: "tagged2" }] });
    metricNames = Array.from({ length: 1_001 }, (_, n) => `tagged${n}`);
    expect((await ask(fields)).errors[0]?.extensions).toMatchObject({ slug: "result_too_large" });
    expect((await ask(fields.replace("])", "], offset: 1)"))).errors).toEqual([]);
  });
});
