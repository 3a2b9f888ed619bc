// Each way in which a source fails, and the one error it becomes. A short answer with status 200 is the worst of them.
import type { ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { afterEach, describe, expect, test } from "vitest";
import type { Failure } from "#src/core/errors.ts";
import type { Backend, SeriesQuery } from "#src/store/store.ts";
import { runWithRecorder } from "#src/telemetry/request-recorder.ts";
import {
  buildMatrix,
  buildSeriesQuery,
  type FakePrometheus,
  openFakePrometheus,
  type ScriptedAnswers,
} from "../../../support/prometheus/scripted-server.ts";
import { sendJson } from "../../../support/scripted-http-source.ts";

const { buckets } = buildSeriesQuery();
const at = (bucket: number) => (buckets.start + (bucket + 1) * buckets.step) / 1_000;
const one = {
  metric: { host: "x" },
  values: [
    [at(0), "1"],
    [at(2), "3.5"],
  ],
};
const whole = buildMatrix([one]);

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
async function read(over: Partial<SeriesQuery> = {}, signal = AbortSignal.timeout(60_000)) {
  return backend?.stores.metrics?.series(buildSeriesQuery(over), signal);
}
/** The query that is answered in the test's way; the count before it finds nothing. */
const main = (reply: (response: ServerResponse) => unknown): ScriptedAnswers => ({
  answer: (form, response) => (form.get("query")?.startsWith("avg") ? reply(response) : false),
});
const error = (errorType: string, text: string) => ({ status: "error", errorType, error: text });

test("an answer that is whole is taken", async () => {
  await serve(main((r) => sendJson(r, whole)));
  expect(await read()).toEqual([{ tags: { host: "x" }, values: Float64Array.of(1, Number.NaN, 3.5) }]);
});

test("whoever explains a request is told how many series and samples came, each once", async () => {
  const sampled: object[] = [];
  const recorder = {
    sent: () => {},
    read: () => {},
    sampled: (part: { series: number }) => void (part.series > 0 && sampled.push(part)),
  };
  const others = Array.from({ length: 3 }, (_, n) => ({ ...one, metric: { host: `${n}` } }));
  // In a form that is read twice: scanned as far as it goes, and then parsed.
  await serve(main((r) => sendJson(r, JSON.stringify(buildMatrix(others), null, 1))));
  await runWithRecorder(recorder, () => read());
  expect(sampled).toEqual([{ backend: "prom", series: 3, samples: 6 }]);
});

describe("a source that fails", () => {
  const cut = JSON.stringify(whole).slice(0, -20);
  const table: readonly (readonly [string, Failure, (response: ServerResponse) => unknown])[] = [
    ["warnings", "partial", (r) => sendJson(r, { ...whole, warnings: ["a store is down"] })],
    [
      "warnings in front",
      "partial",
      (r) => sendJson(r, { status: "success", warnings: ["x"], data: whole.data }),
    ],
    ["isPartial", "partial", (r) => sendJson(r, { status: "success", isPartial: true, data: whole.data })],
    ["an answer cut inside", "malformed", (r) => sendJson(r, cut)],
    ["an error with status 200", "malformed", (r) => sendJson(r, error("execution", "no"))],
    ["a page of HTML", "malformed", (r) => sendJson(r, "<html>")],
    ["no JSON behind the series", "malformed", (r) => sendJson(r, `${JSON.stringify(whole)}x`)],
    [
      "a value that is no number",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: "a" }, values: [[at(0), "many"]] }])),
    ],
    [
      "a label that is no text",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: 1 }, values: [] }])),
    ],
    [
      "a scalar",
      "malformed",
      (r) => sendJson(r, { status: "success", data: { resultType: "scalar", result: [1, "2"] } }),
    ],
    [
      "a time that was not asked for",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: "a" }, values: [[at(0) + 1, "1"]] }])),
    ],
    [
      "a time outside the range",
      "malformed",
      (r) => sendJson(r, buildMatrix([{ metric: { host: "a" }, values: [[at(3), "1"]] }])),
    ],
    [
      "a histogram for a number",
      "malformed",
      (r) =>
        sendJson(
          r,
          buildMatrix([{ metric: { host: "a" }, histograms: [[at(0), { count: "1", sum: "1" }]] }]),
        ),
    ],
    [
      "an encoding that nobody asked for",
      "malformed",
      (r) => {
        r.writeHead(200, { "content-encoding": "gzip" });
        r.end(gzipSync(JSON.stringify(whole)));
      },
    ],
    ["400", "rejected", (r) => sendJson(r, error("bad_data", "secret"), 400)],
    ["401", "denied", (r) => sendJson(r, "", 401)],
    ["403", "denied", (r) => sendJson(r, "", 403)],
    ["404", "rejected", (r) => sendJson(r, "404 page not found", 404)],
    ["422", "rejected", (r) => sendJson(r, error("execution", "too many samples"), 422)],
    [
      "a deadline in the queue",
      "timeout",
      (r) => sendJson(r, error("execution", "x: context deadline exceeded"), 422),
    ],
    [
      "a deadline in evaluation",
      "timeout",
      (r) => sendJson(r, error("timeout", "query timed out in e"), 503),
    ],
    ["a query that was ended", "timeout", (r) => sendJson(r, error("canceled", "query was canceled"), 499)],
    ["429", "overloaded", (r) => sendJson(r, "", 429)],
    ["500", "rejected", (r) => sendJson(r, error("internal", "x"), 500)],
    ["502", "unreachable", (r) => sendJson(r, "", 502)],
    ["503", "overloaded", (r) => sendJson(r, "", 503)],
    ["504", "timeout", (r) => sendJson(r, "", 504)],
    ["a redirect", "rejected", (r) => sendJson(r, "", 302)],
    ["a broken connection", "unreachable", (r) => r.destroy()],
    [
      "half an answer and a broken connection",
      "unreachable",
      (r) => r.writeHead(200).write(cut, () => r.destroy()),
    ],
  ];
  test.each(table)("%s is %s", async (_name, failure, reply) => {
    await serve(main(reply));
    await expect(read()).rejects.toMatchObject({ name: "BackendError", backend: "prom", failure });
  });

  test("silence is a timeout", async () => {
    await serve(
      main(() => undefined),
      { timeout: "300ms" },
    );
    await expect(read()).rejects.toMatchObject({ failure: "timeout" });
  });

  test("a connection that is refused is unreachable", async () => {
    await serve({});
    await fake?.close();
    await expect(read()).rejects.toMatchObject({ failure: "unreachable" });
  });

  test("a read is tried once more after a broken connection, and nothing comes twice", async () => {
    let tries = 0;
    const half = JSON.stringify(whole).slice(0, -30);
    await serve(
      main((r) => (tries++ === 0 ? r.writeHead(200).write(half, () => r.destroy()) : sendJson(r, whole))),
    );
    expect(await read()).toHaveLength(1);
    expect(tries).toBe(2);
  });
});

test("hints on the style of a query are no warnings", async () => {
  const hints = ["PromQL info: metric might not be a counter"];
  await serve(main((r) => sendJson(r, { ...whole, warnings: hints, infos: hints })));
  expect(await read()).toHaveLength(1);
});

test("an answer in another form is asked for again and parsed, and from then on parsed at once", async () => {
  const source = await serve(main((r) => sendJson(r, JSON.stringify(whole, null, 1))));
  const asked = () => source.queries.filter(({ query }) => query.startsWith("avg")).length;
  const found = await read();
  expect(found).toEqual([{ tags: { host: "x" }, values: Float64Array.of(1, Number.NaN, 3.5) }]);
  expect(asked()).toBe(2);
  expect(await read()).toEqual(found);
  expect(asked()).toBe(3);
});

test("a client that leaves ends the query at the source", async () => {
  const leaving = new AbortController();
  await serve(main(() => leaving.abort(new Error("left"))));
  await expect(read({}, leaving.signal)).rejects.toThrow("left");
  await expect.poll(() => fake?.left).toBe(1);
});

test("an answer of too many points is refused while it arrives, and ended at the source", async () => {
  const source = await serve(
    main((r) => {
      r.writeHead(200);
      r.write('{"status":"success","data":{"resultType":"matrix","result":[');
      for (let n = 0; n < 4; n++)
        r.write(`${n === 0 ? "" : ","}${JSON.stringify({ ...one, metric: { host: `${n}` } })}`);
    }),
  );
  await expect(read({ pointLimit: 9 })).rejects.toMatchObject({
    slug: "result_too_large",
    details: { limit: 9 },
  });
  await expect.poll(() => source.left).toBe(1);
  // It was no failure of the source.
  expect(source.queries.filter(({ query }) => query.startsWith("avg"))).toHaveLength(1);
});

test("what a count shows to be too much is not asked for", async () => {
  const source = await serve({
    answer: (form, r) =>
      form.get("query")?.startsWith("count(group")
        ? sendJson(
            r,
            buildMatrix([
              {
                metric: {},
                values: [
                  [at(0), "5"],
                  [at(2), "1"],
                ],
              },
            ]),
          )
        : false,
  });
  const wanted = { slug: "result_too_large", details: { limit: 14, wanted: 15 } };
  await expect(read({ pointLimit: 14 })).rejects.toMatchObject(wanted);
  expect(source.queries.filter(({ query }) => !query.startsWith("count("))).toEqual([]);
  expect(await read({ pointLimit: 15 })).toEqual([]);
});

test("every query says how far to look back, whatever the server does of itself", async () => {
  const seen: (string | null)[] = [];
  const source = await serve({
    answer: (form) => {
      seen.push(form.get("lookback_delta"));
      return false;
    },
  });
  await read();
  expect(source.queries.length).toBeGreaterThan(1);
  expect(new Set(seen)).toEqual(new Set(["300s"]));
});

test("path prefix, credentials and headers go with every request, and no answer of it is to be kept", async () => {
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
  await read();
  await backend.stores.metrics?.names({ site: "a" }, AbortSignal.timeout(60_000));
  expect(new Set(seen)).toEqual(new Set([`Basic ${btoa("u:p:w")} acme no-store true`]));
  expect(seen.length).toBeGreaterThan(4);
});

test("a server that is replaced by a newer one is asked in the newer one's way", async () => {
  let edge: "closed" | "open" = "closed";
  const source = await openFakePrometheus({
    intercept(response, request) {
      if (request.url !== "/api/v1/query") return false;
      const ones = [{ metric: {}, value: [0, edge === "closed" ? "2" : "1"] }];
      const probing = Number(request.headers["content-length"]) < 100;
      if (probing) sendJson(response, { status: "success", data: { resultType: "vector", result: ones } });
      return probing;
    },
  });
  fake = source;
  backend = source.open();
  await read();
  edge = "open";
  source.drop();
  await read();
  const sent = source.queries.filter(({ query }) => query.startsWith("avg")).map(({ query }) => query);
  expect(sent[0]).toContain("[59s999ms] offset 1ms");
  expect(sent.at(-1)).toContain("[60s] offset 1ms");
});

test("servers that cut ranges differently, by turns behind one address, are no source of exact answers", async () => {
  let turn = 0;
  fake = await openFakePrometheus({
    intercept(response, request) {
      response.shouldKeepAlive = false;
      if (request.url !== "/api/v1/query" || Number(request.headers["content-length"]) >= 100) return false;
      const ones = [{ metric: {}, value: [0, turn++ % 2 === 0 ? "2" : "1"] }];
      sendJson(response, { status: "success", data: { resultType: "vector", result: ones } });
      return true;
    },
  });
  backend = fake.open();
  await expect(read()).rejects.toMatchObject({ failure: "malformed" });
  expect(fake.queries.filter(({ query }) => query.startsWith("avg"))).toHaveLength(3);
});

test("a page of panels waits for its turn, and none of it is called an overload", async () => {
  await serve(main((r) => sendJson(r, whole)));
  const signal = AbortSignal.timeout(20_000);
  const answers = await Promise.all(Array.from({ length: 400 }, () => read({}, signal)));
  expect(new Set(answers.map((series) => series?.length))).toEqual(new Set([1]));
});
