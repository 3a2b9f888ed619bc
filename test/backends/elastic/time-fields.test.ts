// The ways in which an index holds the time of lines: numbers of a unit, dates beyond the range of nanoseconds, doc_values
// alone. The expected lines are the raw documents, sorted by the test.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseLogLayout } from "#resolvers/elastic/layout/log-layout.ts";
import type { LogLine } from "#src/core/rows.ts";
import { parseSeverity } from "#src/core/severity-words.ts";
import { fromMillis, type Instant, parseInstant, printMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery } from "#src/store/logs.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";

const start = Date.UTC(2026, 0, 15, 10);
const one = { settings: { number_of_shards: 1, number_of_replicas: 0 } };
const mapped = (name: string, mapping: object) => ({ ...one, mappings: { properties: { [name]: mapping } } });

/** A layout whose time is a number of seconds. */
const seconds = `
name: zerolog
logs:
  time: { field: time, unit: s }
  message: message
  severity: [level]
  hostname: host
  group: app
  json: source
  detect: [level]
`;

/** The same with microseconds, where there is no date. */
const micros = seconds
  .replace("zerolog", "micros")
  .replace("{ field: time, unit: s }", '["@timestamp", { field: time, unit: us }]');

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url, {
      logs: new Map([
        ["zerolog.yaml", parseLogLayout(seconds)],
        ["micros.yaml", parseLogLayout(micros)],
      ]),
      traces: new Map(),
    });
    await cluster.remove("time-*");
  });
  afterAll(async () => {
    await cluster.remove("time-*");
    await cluster.close();
  });

  function buildQuery(index: string, over: Partial<LogQuery> & { readonly layout?: string } = {}): LogQuery {
    const { layout = "auto", ...rest } = over;
    const range = { from: fromMillis(start - 3_600_000), to: fromMillis(start + 3_600_000) };
    const limits = { expectedLines: 1_000, documentLimit: 100_000, tieLimit: 100_000 };
    return {
      sources: [{ id: "app", index, layout, tenantFilter: undefined }],
      range,
      filter: parse(""),
      order: "asc",
      ...limits,
      ...rest,
    };
  }
  async function read(query: LogQuery): Promise<LogLine[]> {
    const lines: LogLine[] = [];
    for await (const batch of cluster.store.lines(query, never)) lines.push(...batch);
    return lines;
  }
  const describeLines = (lines: readonly LogLine[]) =>
    lines.map(({ id, time, severity, message }) => [id.slice(id.indexOf("/") + 1), time, severity, message]);
  const inspect = (index: string, layout = "auto") =>
    cluster.inspect({ id: "app", index, layout: layout, tenantFilter: undefined }, never);

  describe("pino time in milliseconds", () => {
    const levels = [20, 30, 40, 50] as const;
    const names = { 20: "debug", 30: "info", 40: "warn", 50: "error" };
    // More lines of one millisecond than a search returns.
    const lines = Array.from({ length: 900 }, (_, n) => ({
      id: `p${String(n).padStart(4, "0")}`,
      time: start + (n < 600 ? 7 : (n * 7) % 50),
      level: levels[n % 4] ?? 30,
      msg: n % 3 === 0 ? "request completed" : `line ${n}`,
    }));
    const expected = lines
      .toSorted((a, b) => a.time - b.time || (a.id < b.id ? -1 : 1))
      .map(({ id, time, level, msg }) => [id, fromMillis(time), parseSeverity(names[level]), msg]);
    const write = (index: string, some: typeof lines, time: (millis: number) => number | string) =>
      cluster.write(
        index,
        some.map((line) => [
          line.id,
          JSON.stringify({ pid: 7, hostname: "web-1", ...line, time: time(line.time) }),
        ]),
      );

    test("is detected, sorted, bounded and paged", async () => {
      await cluster.createIndex("time-pino", one);
      await write("time-pino", lines, (millis) => millis);
      expect(describeLines(await read(buildQuery("time-pino")))).toEqual(expected);
      expect(
        describeLines(await read(buildQuery("time-pino", { order: "desc", expectedLines: 50 }))),
      ).toEqual(expected.toReversed());
      expect(describeLines(await read(buildQuery("time-pino", { expectedLines: 100_000 })))).toEqual(
        expected,
      );
      const from = fromMillis(start + 8);
      const to = (fromMillis(start + 30) + 999_999n) as Instant;
      const within = expected.filter(([, time]) => (time as Instant) >= from && (time as Instant) <= to);
      expect(describeLines(await read(buildQuery("time-pino", { range: { from, to } })))).toEqual(within);
      const between = { from: (from + 1n) as Instant, to: (from + 2n) as Instant };
      expect(await read(buildQuery("time-pino", { range: between }))).toEqual([]);
      const errors = await read(buildQuery("time-pino", { filter: parse("severity=error msg:completed") }));
      expect(describeLines(errors)).toEqual(
        expected.filter(([, , severity, msg]) => severity === "error" && msg === "request completed"),
      );
      expect(await inspect("time-pino")).toMatchObject({
        layout: "pino",
        problems: [],
        limitations: [],
        newest: fromMillis(start + 49),
      });
    });

    test("is merged with dates under the same name in another index", async () => {
      await cluster.createIndex("time-both-number", one);
      await cluster.createIndex("time-both-date", one);
      const isNumber = (_: unknown, n: number) => n % 2 === 0;
      await write("time-both-number", lines.filter(isNumber), (millis) => millis);
      await write(
        "time-both-date",
        lines.filter((line, n) => !isNumber(line, n)),
        printMillis,
      );
      for (const order of ["asc", "desc"] as const) {
        const found = await read(buildQuery("time-both-*", { order }));
        const rows = describeLines(found).toSorted(([a], [b]) => (String(a) < String(b) ? -1 : 1));
        expect(rows).toEqual(expected.toSorted(([a], [b]) => (String(a) < String(b) ? -1 : 1)));
        const sorted = found.toSorted((a, b) =>
          a.time !== b.time ? (a.time < b.time ? -1 : 1) : a.id < b.id ? -1 : 1,
        );
        expect(found).toEqual(order === "asc" ? sorted : sorted.reverse());
      }
      expect((await inspect("time-both-*")).problems).toEqual([]);
      await cluster.createIndex("time-both-nanos", mapped("time", { type: "date_nanos" }));
      await write("time-both-nanos", lines.slice(0, 1), printMillis);
      await expect(read(buildQuery("time-both-*"))).rejects.toMatchObject({
        slug: "not_supported_by_backend",
      });
    });

    test("does not replace the date of another layout", async () => {
      await cluster.createIndex("time-took", one);
      await cluster.write("time-took", [
        ["a", JSON.stringify({ timestamp: printMillis(start), level: "warn", message: "slow", time: 35 })],
      ]);
      expect(describeLines(await read(buildQuery("time-took")))).toEqual([
        ["a", fromMillis(start), "warn", "slow"],
      ]);
    });
  });

  test("reads a time in seconds by a custom layout", async () => {
    await cluster.createIndex("time-seconds", one);
    const at = start / 1_000;
    await cluster.write(
      "time-seconds",
      [0, 1, 1, 2, 3].map((after, n) => [
        `s${n}`,
        JSON.stringify({ level: "error", time: at + after, message: `m${n}` }),
      ]),
    );
    const layout = "zerolog.yaml";
    const ids = async (from: number, to: number) =>
      (
        await read(
          buildQuery("time-seconds", {
            layout,
            range: { from: fromMillis(start + from), to: fromMillis(start + to) },
          }),
        )
      ).map(({ message }) => message);
    expect(await ids(0, 3_000)).toEqual(["m0", "m1", "m2", "m3", "m4"]);
    expect(await ids(1, 2_999)).toEqual(["m1", "m2", "m3"]);
    expect(await ids(1, 999)).toEqual([]);
    const everything = {
      from: parseInstant("0001-01-01T00:00:00Z") ?? fromMillis(0),
      to: parseInstant("9999-12-31T23:59:59Z") ?? fromMillis(0),
    };
    expect(await read(buildQuery("time-seconds", { layout, range: everything, order: "desc" }))).toHaveLength(
      5,
    );
    expect(await inspect("time-seconds", layout)).toMatchObject({
      newest: fromMillis(start + 3_000),
      problems: [],
    });
  });

  test.each([
    ["nanos", { type: "date_nanos" }],
    ["millis", { type: "date" }],
    ["format", { type: "date", format: "strict_date_time" }],
  ])("bounds microseconds exactly beside an index with dates under the same name: %s", async (name, time) => {
    await cluster.createIndex(`time-beside-${name}-numbers`, one);
    await cluster.createIndex(`time-beside-${name}-dates`, {
      ...one,
      mappings: { properties: { "@timestamp": { type: "date" }, time } },
    });
    await cluster.write(
      `time-beside-${name}-numbers`,
      [0, 1, 2].map((n) => [
        `m${n}`,
        JSON.stringify({ level: "error", time: start * 1_000 + n, message: `m${n}` }),
      ]),
    );
    const instant = printMillis(start);
    await cluster.write(`time-beside-${name}-dates`, [
      ["d", JSON.stringify({ "@timestamp": instant, time: instant, level: "info", message: "d" })],
    ]);
    const micro = fromMillis(start) + 1_000n;
    for (const order of ["asc", "desc"] as const) {
      const query = buildQuery(`time-beside-${name}-*`, { order, layout: "micros.yaml" });
      const all = await read(query);
      expect(all.map(({ message }) => message).toSorted()).toEqual(["d", "m0", "m1", "m2"]);
      const range = { from: micro as Instant, to: (micro + 999n) as Instant };
      const within = await read({ ...query, range });
      expect(within.map(({ message }) => message)).toEqual(["m1"]);
    }
  });

  describe("range beyond what nanoseconds can hold", () => {
    const range = {
      from: parseInstant("0001-01-01T00:00:00Z") ?? fromMillis(0),
      to: parseInstant("9999-12-31T23:59:59.999Z") ?? fromMillis(0),
    };
    const document = (time: string, message: string) =>
      JSON.stringify({ "@timestamp": time, log: { level: "info" }, message });

    test("is refused over dates and nanoseconds only if a line lies beyond", async () => {
      await cluster.createIndex("time-era-date", mapped("@timestamp", { type: "date" }));
      await cluster.createIndex("time-era-nanos", mapped("@timestamp", { type: "date_nanos" }));
      await cluster.write("time-era-date", [["a", document("1970-01-01T00:00:00Z", "first")]]);
      await cluster.write("time-era-nanos", [["b", document("2026-01-15T10:00:00.000000001Z", "second")]]);
      const query = buildQuery("time-era-*", { range });
      expect((await read(query)).map(({ message }) => message)).toEqual(["first", "second"]);
      expect((await read({ ...query, order: "desc" })).map(({ message }) => message)).toEqual([
        "second",
        "first",
      ]);
      for (const outside of ["1969-12-31T23:59:59.999Z", "2262-04-11T23:47:16.855Z"]) {
        await cluster.write("time-era-date", [[outside, document(outside, "outside")]]);
        await expect(read(query)).rejects.toMatchObject({ slug: "not_supported_by_backend" });
        const inside = { from: fromMillis(0), to: fromMillis(start + 1) };
        expect(await read({ ...query, range: inside })).toHaveLength(2);
      }
    });

    test("is answered over dates of one layout and nanoseconds of another", async () => {
      await cluster.createIndex("time-two-date", mapped("@timestamp", { type: "date" }));
      await cluster.createIndex("time-two-nanos", mapped("@timestamp", { type: "date_nanos" }));
      await cluster.write("time-two-date", [["a", document("1970-01-01T00:00:00Z", "first")]]);
      const other = { "@timestamp": "2026-01-15T10:00:00.000000001Z", log: "second", stream: "stdout" };
      await cluster.write("time-two-nanos", [
        ["b", JSON.stringify({ ...other, kubernetes: { pod_name: "web-1" } })],
      ]);
      const query = buildQuery("time-two-*", { range });
      expect((await inspect("time-two-*")).layout).toContain(", ");
      for (const order of ["asc", "desc"] as const) expect(await read({ ...query, order })).toHaveLength(2);
      const outside = "2262-04-11T23:47:16.855Z";
      await cluster.write("time-two-date", [["c", document(outside, "outside")]]);
      await expect(read(query)).rejects.toMatchObject({ slug: "not_supported_by_backend" });
    });

    test("is answered over dates alone", async () => {
      await cluster.createIndex("time-old", mapped("@timestamp", { type: "date" }));
      await cluster.write("time-old", [
        ["a", document("1900-01-01T00:00:00.001Z", "old")],
        ["b", document("3000-01-01T00:00:00Z", "new")],
      ]);
      expect((await read(buildQuery("time-old", { range }))).map(({ message }) => message)).toEqual([
        "old",
        "new",
      ]);
    });
  });

  test("bounds a time that has doc_values only, or refuses it", async () => {
    await cluster.createIndex("time-column", mapped("@timestamp", { type: "date", index: false }));
    await cluster.write("time-column", [
      ["a", JSON.stringify({ "@timestamp": printMillis(start), log: { level: "info" }, message: "m" })],
    ]);
    const report = await inspect("time-column");
    if (server.name === "es7") {
      await expect(read(buildQuery("time-column"))).rejects.toMatchObject({
        slug: "not_supported_by_backend",
      });
      expect(report.problems.join()).toMatch(/@timestamp is not indexed/);
    } else {
      expect(describeLines(await read(buildQuery("time-column")))).toEqual([
        ["a", fromMillis(start), "info", "m"],
      ]);
      expect(report.problems).toEqual([]);
      expect(report.limitations.join()).not.toMatch(/@timestamp/);
    }
  });
});
