// Each way in which a source fails, and the error that it becomes. The worst is an incomplete answer with status 200.
import type { ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { afterEach, describe, expect, test } from "vitest";
import type { Failure } from "#src/core/errors.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import { runWithRecorder } from "#src/telemetry/request-recorder.ts";
import {
  buildMatrix,
  buildSeriesQuery,
  type FakePrometheus,
  openFakePrometheus,
  type ScriptedAnswers,
} from "../../../support/prometheus/scripted-server.ts";
import { sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const { buckets } = buildSeriesQuery();
const toSeconds = (bucket: number) => (buckets.start + (bucket + 1) * buckets.step) / 1_000;
const one = {
  metric: { host: "x" },
  values: [
    [toSeconds(0), "1"],
    [toSeconds(2), "3.5"],
  ],
};
const whole = buildMatrix([one]);

const named = { ...one, metric: { host: "caf~" } };
/** Sends JSON with these bytes in the place of the tilde. */
function sendBytes(response: ServerResponse, value: object, ...bytes: number[]): void {
  const [before = "", behind = ""] = JSON.stringify(value).split("~");
  response.end(Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(behind)]));
}

let fake: FakePrometheus | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await fake?.close();
});

async function serve(knowledge: ScriptedAnswers, settings: object = {}): Promise<FakePrometheus> {
  fake = await openFakePrometheus(knowledge);
  backend = fake.open(settings);
  return fake;
}
async function readSeries(over: Partial<SeriesQuery> = {}, signal = never) {
  return backend?.stores.metrics?.series(buildSeriesQuery(over), signal);
}
/** Scripts the answer of the main query; the count before it finds nothing. */
const answerMainQuery = (reply: (response: ServerResponse) => unknown): ScriptedAnswers => ({
  answer: (form, response) => (form.get("query")?.startsWith("avg") ? reply(response) : false),
});
const buildError = (errorType: string, text: string) => ({ status: "error", errorType, error: text });

test("returns a complete response", async () => {
  await serve(answerMainQuery((r) => sendJson(r, whole)));
  expect(await readSeries()).toEqual([{ tags: { host: "x" }, values: Float64Array.of(1, Number.NaN, 3.5) }]);
});

test("reads a label whose characters arrive in pieces", async () => {
  const host = "caf\u00e9 \u6f22 \u{1f389}";
  const reply = async (response: ServerResponse) => {
    const bytes = Buffer.from(JSON.stringify(buildMatrix([{ ...one, metric: { host } }])));
    for (const byte of bytes) {
      response.write(Buffer.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  };
  await serve(answerMainQuery((r) => void reply(r)));
  expect(await readSeries()).toMatchObject([{ tags: { host } }]);
});

test("reports series and samples once each to the request recorder", async () => {
  const sampled: object[] = [];
  const recorder = {
    recordRequest: () => {},
    recordDocuments: () => {},
    recordSamples: (part: { series: number }) => void (part.series > 0 && sampled.push(part)),
  };
  const others = Array.from({ length: 3 }, (_, n) => ({ ...one, metric: { host: `${n}` } }));
  // A form that is read twice: scanned as far as possible, and then parsed.
  await serve(answerMainQuery((r) => sendJson(r, JSON.stringify(buildMatrix(others), null, 1))));
  await runWithRecorder(recorder, () => readSeries());
  expect(sampled).toEqual([{ backend: "prom", series: 3, samples: 6 }]);
});

describe("a failing source", () => {
  const cut = JSON.stringify(whole).slice(0, -20);
  const table: readonly (readonly [string, Failure, (response: ServerResponse) => unknown])[] = [
    ["warnings", "partial", (r) => sendJson(r, { ...whole, warnings: ["a store is down"] })],
    [
      "warnings before the data",
      "partial",
      (r) => sendJson(r, { status: "success", warnings: ["x"], data: whole.data }),
    ],
    ["isPartial", "partial", (r) => sendJson(r, { status: "success", isPartial: true, data: whole.data })],
    ["a truncated response", "malformed", (r) => sendJson(r, cut)],
    ["an error with status 200", "malformed", (r) => sendJson(r, buildError("execution", "no"))],
    ["a label that is not UTF-8", "malformed", (r) => sendBytes(r, buildMatrix([named]), 0xe9)],
    ["a label that is a surrogate", "malformed", (r) => sendBytes(r, buildMatrix([named]), 0xed, 0xa0, 0x80)],
    [
      "a warning that is not UTF-8",
      "malformed",
      (r) => sendBytes(r, { ...buildMatrix([one]), infos: ["~"] }, 0xff),
    ],
    ["a spaced answer that is not UTF-8", "malformed", (r) => sendBytes(r, buildMatrix([named]), 0xe9, 0x20)],
    ["a page of HTML", "malformed", (r) => sendJson(r, "<html>")],
    ["invalid JSON after the series", "malformed", (r) => sendJson(r, `${JSON.stringify(whole)}x`)],
    [
      "a value that is not a number",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: "a" }, values: [[toSeconds(0), "many"]] }])),
    ],
    [
      "a label that is not a string",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: 1 }, values: [] }])),
    ],
    [
      "a scalar",
      "malformed",
      (r) => sendJson(r, { status: "success", data: { resultType: "scalar", result: [1, "2"] } }),
    ],
    [
      "a time that was not requested",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: "a" }, values: [[toSeconds(0) + 1, "1"]] }])),
    ],
    [
      "a time outside the range",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: "a" }, values: [[toSeconds(3), "1"]] }])),
    ],
    [
      "a histogram instead of a number",
      "malformed",
      (r) =>
        sendJson(
          r,
          buildMatrix([{ metric: { host: "a" }, histograms: [[toSeconds(0), { count: "1", sum: "1" }]] }]),
        ),
    ],
    [
      "an encoding that was not requested",
      "malformed",
      (r) => {
        r.writeHead(200, { "content-encoding": "gzip" });
        r.end(gzipSync(JSON.stringify(whole)));
      },
    ],
    ["400", "rejected", (r) => sendJson(r, buildError("bad_data", "secret"), 400)],
    ["401", "denied", (r) => sendJson(r, "", 401)],
    ["403", "denied", (r) => sendJson(r, "", 403)],
    ["404", "rejected", (r) => sendJson(r, "404 page not found", 404)],
    ["422", "rejected", (r) => sendJson(r, buildError("execution", "too many samples"), 422)],
    [
      "a deadline exceeded in the queue",
      "timeout",
      (r) => sendJson(r, buildError("execution", "x: context deadline exceeded"), 422),
    ],
    [
      "a deadline exceeded in evaluation",
      "timeout",
      (r) => sendJson(r, buildError("timeout", "query timed out in e"), 503),
    ],
    ["a cancelled query", "timeout", (r) => sendJson(r, buildError("canceled", "query was canceled"), 499)],
    ["429", "overloaded", (r) => sendJson(r, "", 429)],
    ["500", "rejected", (r) => sendJson(r, buildError("internal", "x"), 500)],
    ["502", "unreachable", (r) => sendJson(r, "", 502)],
    ["503", "overloaded", (r) => sendJson(r, "", 503)],
    ["504", "timeout", (r) => sendJson(r, "", 504)],
    ["a redirect", "rejected", (r) => sendJson(r, "", 302)],
    ["a broken connection", "unreachable", (r) => r.destroy()],
    [
      "a connection broken after half a response",
      "unreachable",
      (r) => r.writeHead(200).write(cut, () => r.destroy()),
    ],
  ];
  test.each(table)("maps %s to %s", async (_name, failure, reply) => {
    await serve(answerMainQuery(reply));
    await expect(readSeries()).rejects.toMatchObject({ name: "BackendError", backend: "prom", failure });
  });

  test("says that a server redirects", async () => {
    await serve(answerMainQuery((r) => sendJson(r, "", 302)));
    await expect(readSeries()).rejects.toThrow("status 302: it redirects; is the path of url right");
  });

  test("maps no response to timeout", async () => {
    await serve(
      answerMainQuery(() => undefined),
      { timeout: "300ms" },
    );
    await expect(readSeries()).rejects.toMatchObject({ failure: "timeout" });
  });

  test("maps a refused connection to unreachable", async () => {
    await serve({});
    await fake?.close();
    await expect(readSeries()).rejects.toMatchObject({ failure: "unreachable" });
  });

  test("retries once after a broken connection, without duplicate series", async () => {
    let tries = 0;
    const half = JSON.stringify(whole).slice(0, -30);
    await serve(
      answerMainQuery((r) =>
        tries++ === 0 ? r.writeHead(200).write(half, () => r.destroy()) : sendJson(r, whole),
      ),
    );
    expect(await readSeries()).toHaveLength(1);
    expect(tries).toBe(2);
  });
});

test("ignores PromQL info annotations among the warnings", async () => {
  const hints = ["PromQL info: metric might not be a counter"];
  await serve(answerMainQuery((r) => sendJson(r, { ...whole, warnings: hints, infos: hints })));
  expect(await readSeries()).toHaveLength(1);
});

test("parses responses that the scanner cannot read, after the first without scanning", async () => {
  const source = await serve(answerMainQuery((r) => sendJson(r, JSON.stringify(whole, null, 1))));
  const countMainQueries = () => source.queries.filter(({ query }) => query.startsWith("avg")).length;
  const found = await readSeries();
  expect(found).toEqual([{ tags: { host: "x" }, values: Float64Array.of(1, Number.NaN, 3.5) }]);
  expect(countMainQueries()).toBe(2);
  expect(await readSeries()).toEqual(found);
  expect(countMainQueries()).toBe(3);
});

test("aborts the query at the source when the client disconnects", async () => {
  const leaving = new AbortController();
  await serve(answerMainQuery(() => leaving.abort(new Error("left"))));
  await expect(readSeries({}, leaving.signal)).rejects.toThrow("left");
  await expect.poll(() => fake?.left).toBe(1);
});

test("refuses and aborts a response over the limit of points while it arrives", async () => {
  const source = await serve(
    answerMainQuery((r) => {
      r.writeHead(200);
      r.write('{"status":"success","data":{"resultType":"matrix","result":[');
      for (let n = 0; n < 4; n++)
        r.write(`${n === 0 ? "" : ","}${JSON.stringify({ ...one, metric: { host: `${n}` } })}`);
    }),
  );
  await expect(readSeries({ pointLimit: 9 })).rejects.toMatchObject({
    slug: "result_too_large",
    details: { limit: 9 },
  });
  await expect.poll(() => source.left).toBe(1);
  // Not retried: it is no failure of the source.
  expect(source.queries.filter(({ query }) => query.startsWith("avg"))).toHaveLength(1);
});

test("refuses a query that a count shows to be over the limit, without sending it", async () => {
  const source = await serve({
    answer: (form, r) =>
      form.get("query")?.startsWith("count(group")
        ? sendJson(
            r,
            buildMatrix([
              {
                metric: {},
                values: [
                  [toSeconds(0), "5"],
                  [toSeconds(2), "1"],
                ],
              },
            ]),
          )
        : false,
  });
  const refusal = { slug: "result_too_large", details: { limit: 14, wanted: 15 } };
  await expect(readSeries({ pointLimit: 14 })).rejects.toMatchObject(refusal);
  expect(source.queries.filter(({ query }) => !query.startsWith("count("))).toEqual([]);
  expect(await readSeries({ pointLimit: 15 })).toEqual([]);
});

test("sends lookback_delta with every query", async () => {
  const seen: (string | null)[] = [];
  const source = await serve({
    answer: (form) => {
      seen.push(form.get("lookback_delta"));
      return false;
    },
  });
  await readSeries();
  expect(source.queries.length).toBeGreaterThan(1);
  expect(new Set(seen)).toEqual(new Set(["300s"]));
});

test("sends path prefix, credentials, headers and no-store with every request", async () => {
  const seen: string[] = [];
  const source = await openFakePrometheus({
    intercept: (_, request) => {
      const { authorization, "cache-control": cache, "x-scope-orgid": tenant } = request.headers;
      seen.push(`${authorization} ${tenant} ${cache} ${request.url?.startsWith("/a/prometheus/api/v1/")}`);
      return false;
    },
  });
  fake = source;
  backend = source.open({
    url: `${source.url}/a/prometheus/`,
    auth: { username: "u", password: "p:w" },
    headers: { "X-Scope-OrgID": "acme" },
  });
  await readSeries();
  await backend.stores.metrics?.names({ site: "a" }, never);
  expect(new Set(seen)).toEqual(new Set([`Basic ${btoa("u:p:w")} acme no-store true`]));
  expect(seen.length).toBeGreaterThan(4);
});

test("detects an upgrade of the server after a reconnect", async () => {
  let edge: "closed" | "open" = "closed";
  const source = await openFakePrometheus({
    intercept(response, request) {
      if (request.url !== "/api/v1/query") return false;
      const ones = [{ metric: {}, value: [0, edge === "closed" ? "2" : "1"] }];
      const probing = Number(request.headers["content-length"]) < 200;
      if (probing) sendJson(response, { status: "success", data: { resultType: "vector", result: ones } });
      return probing;
    },
  });
  fake = source;
  backend = source.open();
  await readSeries();
  edge = "open";
  source.drop();
  await readSeries();
  const sent = source.queries.filter(({ query }) => query.startsWith("avg")).map(({ query }) => query);
  expect(sent[0]).toContain("[59s999ms] offset 1ms");
  expect(sent.at(-1)).toContain("[60s] offset 1ms");
});

test("fails if servers with different range edges alternate behind one address", async () => {
  let turn = 0;
  fake = await openFakePrometheus({
    intercept(response, request) {
      response.shouldKeepAlive = false;
      if (request.url !== "/api/v1/query" || Number(request.headers["content-length"]) >= 200) return false;
      const ones = [{ metric: {}, value: [0, turn++ % 2 === 0 ? "2" : "1"] }];
      sendJson(response, { status: "success", data: { resultType: "vector", result: ones } });
      return true;
    },
  });
  backend = fake.open();
  await expect(readSeries()).rejects.toMatchObject({ failure: "malformed" });
  expect(fake.queries.filter(({ query }) => query.startsWith("avg"))).toHaveLength(3);
});

test("queues 400 concurrent queries without an overload error", async () => {
  await serve(answerMainQuery((r) => sendJson(r, whole)));
  const signal = new AbortController().signal;
  const answers = await Promise.all(Array.from({ length: 400 }, () => readSeries({}, signal)));
  expect(new Set(answers.map((series) => series?.length))).toEqual(new Set([1]));
});
