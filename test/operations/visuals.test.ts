// Saved visuals over HTTP: what is public, both forms of an answer, and equality of CSV and JSON data. An independent
// reader parses the CSV.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import type { Limits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { Unauthorized } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { checkVisual } from "#src/operations/metrics/visuals.ts";
import { createServer } from "#src/server/server.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import { createVisualFinder, readVisual, type Visual } from "#src/visuals/visual.ts";
import { createWatchedTelemetry } from "../support/error-reports.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { never } from "../support/signals.ts";

const id = "AAAAAAAAAAAAAAAAAAAAAA";
const base = Date.UTC(2026, 0, 15, 10);
const lines = { id, title: "CPU", type: "line", site: "shop", range: "1h", resolution: "MINUTELY" };
const select = [{ name: "cpu", tags: { host: "*" }, field: "gauge" }];

function visualOf(over: object = {}): Visual {
  return readVisual(JSON.stringify({ ...lines, select, ...over }), "visual.yaml", checkVisual);
}

type Labels = Readonly<Record<string, string>>;
type Samples = readonly (readonly [labels: Labels, values: readonly number[]])[];
/** One sample a minute for each series, the last at `base`. */
function storeWith(samples: Samples): MetricStore {
  const metrics = createMemoryMetrics("memory");
  for (const [labels, values] of samples) {
    const append = metrics.append("cpu", "gauge", "value", { site: "shop", ...labels });
    for (const [index, value] of values.entries()) append(base - (values.length - 1 - index) * 60_000, value);
  }
  return metrics;
}

function serve(
  visuals: readonly Visual[],
  store: MetricStore = storeWith([[{ host: "a" }, [1, 2]]]),
  limits: Partial<Limits> = {},
) {
  const watched = createWatchedTelemetry();
  const server = createServer({
    operations,
    authenticate: () => {
      throw new Unauthorized();
    },
    sites: new Map([
      [
        "shop",
        {
          id: "shop",
          retention: 86_400_000,
          counterDefault: "cumulative",
          metrics: { backend: "memory", store, match: { site: "shop" } },
        },
      ],
      ["bare", { id: "bare", retention: 86_400_000, counterDefault: "cumulative" }],
    ]),
    limits: { ...defaults.limits, ...limits },
    telemetry: watched.telemetry,
    now: () => fromMillis(base),
    loadGraphql: () => Promise.reject(new Error("not asked for")),
    visuals: {
      find: createVisualFinder(visuals),
      createAnswerCache: () => (_, compute) => compute(never),
    },
  });
  const ask = (path: string) => server.fetch(`http://readout/api/v2/saved_visuals/${path}`);
  return { ask, ...watched };
}

/** Parses strict RFC 4180: CRLF between records, doubled quotes. */
function readCsv(text: string): string[][] {
  const records: string[][] = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|$)/y;
  let record: string[] = [];
  while (field.lastIndex < text.length) {
    const [, quoted, plain = "", end] = field.exec(text) ?? [];
    if (end === undefined) throw new Error(`no CSV: ${JSON.stringify(text)}`);
    record.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === ",") continue;
    records.push(record);
    record = [];
  }
  return records;
}
/** Adds the apostrophe to texts that a spreadsheet would read as a formula, character by character. */
const defused = (text: string): string => {
  const visible = [...text].find((character) => !/\s|\p{C}|\p{Z}/u.test(character)) ?? "";
  const opens = "=+-@\uFF1D\uFF0B\uFF0D\uFF20".includes(visible) && visible !== "";
  return opens || ["\t", "\r", "\n"].includes(text[0] ?? "") ? `'${text}` : text;
};

describe("saved visual as JSON", () => {
  test("returns series", async () => {
    const answer = await serve([visualOf({ description: "all of them" })]).ask(id);
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toBe("application/json; charset=utf-8");
    expect(await answer.json()).toEqual({
      id,
      title: "CPU",
      description: "all of them",
      type: "line",
      resolution: "MINUTELY",
      from: "2026-01-15T09:00:00.000Z",
      to: "2026-01-15T10:00:00.000Z",
      series: [
        {
          id: "cpu|host=a|gauge",
          name: "cpu",
          tags: { host: "a" },
          field: "gauge",
          min: 1,
          max: 2,
          data: [
            { timestamp: "2026-01-15T09:59:00.000Z", value: 1 },
            { timestamp: "2026-01-15T10:00:00.000Z", value: 2 },
          ],
        },
      ],
    });
  });

  test("returns the rows of a table over a fixed range", async () => {
    const table = visualOf({
      type: "table",
      range: undefined,
      resolution: undefined,
      from: "2026-01-15T09:59:30Z",
      to: "2026-01-15T10:00:00Z",
      group_by: [{ Tag: "host" }],
      select: [{ ...select[0], id: "now" }],
    });
    expect(await (await serve([table]).ask(id)).json()).toEqual({
      id,
      title: "CPU",
      description: "",
      type: "table",
      resolution: null,
      from: "2026-01-15T09:59:30.000Z",
      to: "2026-01-15T10:00:00.000Z",
      rows: [{ id: expect.any(String), group: { host: "a" }, data: { now: 2 } }],
    });
  });
});

describe("saved visuals: unknown ids", () => {
  test.each([
    "BBBBBBBBBBBBBBBBBBBBBB",
    "{id}",
    "%7Bid%7D",
    "..",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    `${id}%2Fcsv`,
    `${id}%00`,
    `${id}/`,
    `${id}/csv/`,
    `${id}/json`,
    id.toLowerCase(),
    "%ff",
    "",
  ])("answers 404 for %s", async (path) => {
    const { ask } = serve([visualOf()]);
    const answer = await ask(path);
    expect([answer.status, await answer.text()]).toEqual([404, '{"error":"Not found"}']);
  });

  test.each(["", "/csv"])(
    "answers 404 for a visual of a site that is no longer configured%s",
    async (form) => {
      const answer = await serve([visualOf({ site: "gone" })]).ask(`${id}${form}`);
      expect([answer.status, await answer.text()]).toEqual([404, '{"error":"Not found"}']);
    },
  );

  test("answers 404 without a folder", async () => {
    const answer = await serve([]).ask(`${id}/csv`);
    expect(answer.status).toBe(404);
  });
});

test("a saved visual is refused in both forms when the metrics routes refuse its query", async () => {
  const wrong = visualOf({ select: [{ ...select[0], field: "p_90" }] });
  const { ask } = serve(
    [wrong, visualOf({ id: "BBBBBBBBBBBBBBBBBBBBBB", site: "bare" })],
    failing("type is known"),
  );
  for (const form of ["", "/csv"]) {
    expect([form, (await ask(`BBBBBBBBBBBBBBBBBBBBBB${form}`)).status]).toEqual([form, 422]);
    expect([form, (await ask(`${id}${form}`)).status]).toEqual([form, 500]);
  }
});

function failing(message: string): MetricStore {
  const fail = () => Promise.reject(new Error(message));
  return { names: fail, type: fail, tagKeys: fail, series: fail };
}

describe("saved visual as CSV", () => {
  test.each([
    ["CPU of the web", "cpu-of-the-web.csv"],
    ['a"b/../c\r\nSet-Cookie: x', "a-b-c-set-cookie-x.csv"],
    ["Größe 🎉", "gro-e.csv"],
    ["日本語", "visual.csv"],
  ])("downloads the title %j as %s", async (title, file) => {
    const answer = await serve([visualOf({ title })]).ask(`${id}/csv`);
    expect(answer.headers.get("content-type")).toBe("text/csv; charset=utf-8");
    const disposition = answer.headers.get("content-disposition");
    expect(disposition).toMatch(/^attachment; filename="[a-z0-9-]+\.csv"$/);
    expect(disposition).toBe(`attachment; filename="${file}"`);
  });

  test("has a column for each series and an empty cell without a point", async () => {
    const store = storeWith([
      [{ host: "a" }, [1, -2.5]],
      [{ host: "=cmd|'/c calc'!A1" }, [3]],
    ]);
    const answer = await serve([visualOf()], store).ask(`${id}/csv`);
    expect(await answer.text()).toBe(
      [
        "timestamp,cpu|host=%3Dcmd%7C'/c calc'!A1|gauge,cpu|host=a|gauge",
        "2026-01-15T09:59:00.000Z,,1",
        "2026-01-15T10:00:00.000Z,3,-2.5",
        "",
      ].join("\r\n"),
    );
  });

  test("has its columns without data", async () => {
    const table = visualOf({
      type: "table",
      group_by: [{ Tag: "host" }, "Name"],
      select: [
        { ...select[0], id: "a" },
        { ...select[0], name: "none", id: "b" },
      ],
    });
    const empty = serve([table, visualOf({ id: "BBBBBBBBBBBBBBBBBBBBBB" })], storeWith([]));
    expect(await (await empty.ask(`${id}/csv`)).text()).toBe("host,Name,a,b\r\n");
    expect(await (await empty.ask("BBBBBBBBBBBBBBBBBBBBBB/csv")).text()).toBe("timestamp\r\n");
  });

  test("prints no inherited property of Object", async () => {
    const table = visualOf({
      type: "table",
      group_by: [{ Tag: "host" }, { Tag: "toString" }],
      select: [
        { ...select[0], id: "a" },
        { ...select[0], name: "none", id: "constructor" },
      ],
    });
    expect(await (await serve([table]).ask(`${id}/csv`)).text()).toBe(
      "host,toString,a,constructor\r\na,,2,\r\n",
    );
  });

  const value = fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => number + 0);
  const host = fc.oneof(
    fc.string({ unit: "binary", minLength: 1 }),
    fc.constantFrom(
      "=1+1",
      "-x",
      "+y",
      "@z",
      "\tq",
      "\rq",
      "\nq",
      "a\nb",
      "a\r\nb",
      'say "hi"',
      "a,b",
      " ",
      "'",
      "＝x",
    ),
  );
  const samples = fc.uniqueArray(fc.tuple(host, fc.array(value, { minLength: 1, maxLength: 5 })), {
    selector: ([name]) => name,
    maxLength: 4,
  });
  const storeOf = (drawn: readonly (readonly [string, readonly number[]])[]) =>
    storeWith(drawn.map(([name, values]) => [{ host: name }, values]));

  test("parsed columns equal the series of the JSON form", async () => {
    await fc.assert(
      fc.asyncProperty(samples, async (drawn) => {
        const { ask } = serve([visualOf()], storeOf(drawn));
        const [header = [], ...records] = readCsv(await (await ask(`${id}/csv`)).text());
        const { series } = (await (await ask(id)).json()) as {
          series: { id: string; data: { timestamp: string; value: number }[] }[];
        };
        expect(header).toEqual(["timestamp", ...series.map((one) => defused(one.id))]);
        const longest = Math.max(0, ...drawn.map(([, values]) => values.length));
        expect(records.map(([time]) => time)).toEqual(
          Array.from({ length: longest }, (_, n) =>
            new Date(base - (longest - 1 - n) * 60_000).toISOString(),
          ),
        );
        for (const [column, { data }] of series.entries()) {
          const points = records.flatMap((record) =>
            record[column + 1] === "" ? [] : [[record[0], Number(record[column + 1])]],
          );
          expect(points).toEqual(data.map((point) => [point.timestamp, point.value]));
        }
      }),
      { numRuns: sampleRuns(60) },
    );
  });

  test("parsed records equal the rows of the JSON form, for any tag values", async () => {
    const table = visualOf({
      type: "table",
      group_by: [{ Tag: "host" }],
      select: [{ ...select[0], id: "value" }],
    });
    await fc.assert(
      fc.asyncProperty(samples, async (drawn) => {
        const { ask } = serve([table], storeOf(drawn));
        const [header, ...records] = readCsv(await (await ask(`${id}/csv`)).text());
        expect(header).toEqual(["host", "value"]);
        const expected = drawn.map(([name, values]) => [defused(name), values.at(-1)]);
        const found = records.map(([name, text]) => [name, Number(text)]);
        const byName = (a: readonly unknown[], b: readonly unknown[]) =>
          String(a[0]) < String(b[0]) ? -1 : 1;
        expect(found.sort(byName)).toEqual(expected.sort(byName));
      }),
      { numRuns: sampleRuns(60) },
    );
  });
});

test("visuals hold together what one token may, and give it back", async () => {
  const first = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const plain = storeWith([[{ host: "a" }, [1, 2]]]);
  let reads = 0;
  const store: MetricStore = {
    ...plain,
    async series(query, signal) {
      query.held?.hold(80_000);
      reads += 1;
      asked.resolve();
      if (reads === 1) await first.promise;
      return plain.series(query, signal);
    },
  };
  const other = "BBBBBBBBBBBBBBBBBBBBBB";
  const { ask } = serve([visualOf(), visualOf({ id: other })], store, { heldBytes: 100_000 });
  const earlier = ask(id);
  await asked.promise;
  expect((await ask(other)).status).toBe(429);
  first.resolve();
  expect((await earlier).status).toBe(200);
  expect((await ask(other)).status).toBe(200);
});
