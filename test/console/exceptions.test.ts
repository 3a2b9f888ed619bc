// The exceptions beside the rows of a listing of errors, whatever the order and the filter of that.
import { afterAll, afterEach, beforeEach, expect, test, vi } from "vitest";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { requestExceptions } from "#src/console/traces/exceptions.js";
import type { Backend } from "#src/store/backend.ts";
import { clock, createDemo, token } from "../support/demo-server.ts";
import { base, createException, createSpan } from "../tracing/span-builder.ts";

const traces = createMemorySpans();
let readings = 0;
const watch = (backend: Backend): Backend => {
  const counted: typeof traces = {
    ...traces,
    summaries: (query, signal) => {
      readings += 1;
      return traces.summaries(query, signal);
    },
  };
  return { ...backend, stores: { ...backend.stores, traces: counted } };
};
const demo = await createDemo({ watch });
afterAll(() => demo.close());

const second = 1_000;
/** One a second, at .123456 of it; every sixth is slow. */
const errors = Array.from({ length: 600 }, (_, n) => {
  const to = n * second + 123.456;
  const isSlow = n % 6 === 0;
  return createSpan({
    trace_id: n.toString(16).padStart(32, "0"),
    span_id: `a-${n}~b`,
    from: to - (isSlow ? 500 : 5) - n / 1_000,
    to,
    events: [createException(n * second, `Error${n % 2}`)],
  });
});
traces.add("demo-shop-traces", errors);

beforeEach(() => {
  vi.stubGlobal("sessionStorage", { getItem: () => token });
  vi.stubGlobal("fetch", (path: string, { method, headers, body }: RequestInit) =>
    demo.server.fetch(`http://readout${path}`, { method, headers, body } as RequestInit),
  );
});
afterEach(() => {
  vi.unstubAllGlobals();
});

type Row = Parameters<typeof requestExceptions>[1][number];

async function listErrors(over: object, pagination: object = { cursor: "Time" }) {
  const { status, body } = await demo.rest("POST", "/api/v2/tracing/traces/errors", {
    site_ids: ["demo-shop"],
    from: new Date(base).toISOString(),
    to: new Date(clock).toISOString(),
    pagination: { per_page: 50, order: "DESC", ...pagination },
    ...over,
  });
  expect(status).toBe(200);
  return body as readonly Row[];
}

async function tellExceptions(rows: readonly Row[]) {
  readings = 0;
  const find = await requestExceptions("demo-shop", rows, new AbortController().signal);
  return rows.map((row) => find(row)?.name);
}

test("the newest errors are told, though their times are finer than those of the listing", async () => {
  const rows = await listErrors({});
  expect(rows[0]?.time).toBe(new Date(base + 599 * second + 123).toISOString());
  const told = await tellExceptions(rows);
  expect(told.slice(0, 6)).toEqual(["Error1", "Error0", "Error1", "Error0", "Error1", "Error0"]);
  expect(told).not.toContain(undefined);
  // The errors, and the samples of all of them.
  expect(readings).toBe(2);
});

test.each([
  ["by duration", {}, { cursor: "Duration", per_page: 100 }],
  ["of a filter", { duration: 400 }, { cursor: "Time", per_page: 100 }],
])("errors %s are told, whatever has failed between them", async (_, filter, pagination) => {
  const rows = await listErrors(filter, pagination);
  expect(rows).toHaveLength(100);
  expect(await tellExceptions(rows)).toEqual(rows.map(() => "Error0"));
});

test("one error of many of its millisecond is told", async () => {
  const same = ["x", "y", "z"].map((name, n) =>
    createSpan({
      trace_id: `f${n}`.padStart(32, "0"),
      span_id: `f${n}`,
      from: 700 * second,
      to: 700 * second + n / 10,
      events: [createException(700 * second, name)],
    }),
  );
  traces.add("demo-shop-traces", same);
  const rows = await listErrors({ from: new Date(base + 700 * second).toISOString() });
  expect(rows).toHaveLength(3);
  for (const [place, row] of rows.entries())
    expect(await tellExceptions([row])).toEqual([["z", "y", "x"][place]]);
});
