// The exceptions beside the rows of a listing of errors, whatever the order and the filter of that.
import { afterAll, afterEach, beforeEach, expect, test, vi } from "vitest";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { requestExceptions } from "#src/console/traces/exceptions.js";
import type { Backend } from "#src/store/backend.ts";
import { encodeErrorDigest } from "#src/tracing/spans/digest.ts";
import { deriveNames } from "#src/tracing/spans/requests.ts";
import { createCallLog } from "../support/call-log.ts";
import { clock, createDemo, token } from "../support/demo-server.ts";
import { base, createException, createSpan } from "../tracing/span-builder.ts";

const traces = createMemorySpans();
const { asked, counted } = createCallLog();
const watch = (backend: Backend): Backend => ({
  ...backend,
  stores: {
    ...backend.stores,
    traces: {
      ...traces,
      summaries: counted("summaries", traces.summaries),
      find: counted("find", traces.find),
    },
  },
});
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

interface Row {
  readonly trace_id: string;
  readonly span_id: string;
}

/** A page of errors, and what the console tells of each of its rows. */
async function tellErrors(over: object, pagination: object = { cursor: "Time" }) {
  const page = {
    site_ids: ["demo-shop"],
    from: new Date(base).toISOString(),
    to: new Date(clock).toISOString(),
    pagination: { per_page: 50, order: "DESC", ...pagination },
    ...over,
  };
  const { status, body } = await demo.rest("POST", "/api/v2/tracing/traces/errors", page);
  expect(status).toBe(200);
  const rows = body as readonly Row[];
  asked.length = 0;
  const find = await requestExceptions(page, new AbortController().signal);
  return { rows, told: rows.map((row) => find(row)?.name) };
}

test.each([
  ["the newest errors", {}, { cursor: "Time" }],
  ["the next page", {}, { cursor: { time: new Date(base + 400 * second).toISOString() } }],
  ["errors by duration", {}, { cursor: "Duration", per_page: 100 }],
  ["errors of a filter", { duration: 400 }, { cursor: "Time", per_page: 100 }],
])("%s are told by one listing and one look at their traces", async (_, filter, pagination) => {
  const { rows, told } = await tellErrors(filter, pagination);
  expect(rows.length).toBeGreaterThanOrEqual(50);
  expect(told).toEqual(rows.map(({ trace_id }) => `Error${Number.parseInt(trace_id, 16) % 2}`));
  expect(asked).toEqual(["summaries", "find"]);
});

test("of two sides of a call with one id, each row has the exception of its digest", async () => {
  const side = (kind: "client" | "server", name: string, to: number) =>
    createSpan({
      trace_id: "e".repeat(32),
      span_id: "e",
      span_kind: kind,
      from: 650 * second,
      to: 650 * second + to,
      events: [createException(650 * second + to - 1, name)],
    });
  traces.add("demo-shop-traces", [side("client", "ClientError", 10), side("server", "ServerError", 9)]);
  const range = {
    from: new Date(base + 650 * second).toISOString(),
    to: new Date(base + 651 * second).toISOString(),
  };
  for (const [kind, name] of [
    ["client", "ClientError"],
    ["server", "ServerError"],
  ] as const) {
    const digests = [encodeErrorDigest(name, deriveNames(side(kind, name, 9)))];
    expect((await tellErrors({ ...range, digests })).told).toEqual([name]);
  }
});

test("of several exceptions of a span the one of the digest is told, else the first", async () => {
  const two = createSpan({
    trace_id: "f".repeat(32),
    span_id: "f",
    from: 700 * second,
    to: 701 * second,
    events: [createException(700 * second, "First"), createException(700 * second, "Second")],
  });
  traces.add("demo-shop-traces", [two]);
  const late = { from: new Date(base + 700 * second).toISOString() };
  expect((await tellErrors(late)).told).toEqual(["First"]);
  for (const name of ["First", "Second"]) {
    const digests = [encodeErrorDigest(name, deriveNames(two))];
    expect((await tellErrors({ ...late, digests })).told).toEqual([name]);
  }
});
