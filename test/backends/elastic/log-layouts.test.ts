// Log layouts on real servers: `auto` detects what each shipper writes, several layouts behind one pattern are answered in
// exact order, and what cannot be read exactly is refused.
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { parseSeverity } from "#src/core/severity-words.ts";
import { endOfMilli, fromMillis, type Instant, parseInstant, printNanos } from "#src/core/time.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery } from "#src/store/logs.ts";
import type { LoadedLine } from "../../log-query/script.ts";
import { filebeat, printDocument } from "../../support/elastic/filebeat.ts";
import * as shippers from "../../support/elastic/log-shippers.ts";
import * as platforms from "../../support/elastic/platform-log-shippers.ts";
import { never } from "../../support/signals.ts";
import { type NamedServer, onServers } from "../selected-servers.ts";
import { at, createSource, listIds, range, start, useLogCluster } from "./log-cluster.ts";

const ecs: shippers.LogShipper = {
  layout: "ecs",
  index: (prefix) => `${prefix}-filebeat`,
  definition: filebeat,
  document: printDocument,
};
const anywhere = [
  ecs,
  shippers.fluentBitLogs,
  shippers.fluentdLogs,
  shippers.logstashLogs,
  shippers.otelNoneLogs,
  shippers.rsyslogLogs,
  shippers.syslogNgLogs,
  shippers.vectorLogs,
  platforms.cloudFoundryLogs,
  platforms.gelfLogs,
  platforms.openshiftLogs,
  platforms.wazuhLogs,
];
function shippersOn({ name, product }: NamedServer): readonly shippers.LogShipper[] {
  if (product === "opensearch") {
    const flat = name === "os3" ? shippers.ss4oLogsFlat : shippers.ss4oLogsDynamic;
    return [...anywhere, flat, shippers.dataPrepperLogs, shippers.exportedEcsLogs, shippers.exportedFlatLogs];
  }
  return name === "es7"
    ? anywhere
    : [...anywhere, shippers.logstashEcsLogs, shippers.otelLogs, shippers.elasticApmLogs];
}

onServers((server) => {
  const logs = useLogCluster(server.url, "layout-*");
  const { read, buildQuery } = logs;
  async function ship(shipper: shippers.LogShipper, prefix: string, lines: readonly LoadedLine[]) {
    const index = shipper.index(prefix);
    await logs.cluster.createIndex(index, shipper.definition);
    await logs.cluster.write(
      index,
      lines.map(({ id, ...line }) => [id, shipper.document(line)]),
    );
    return index;
  }

  describe("one layout behind a pattern", () => {
    const lines: readonly LoadedLine[] = [
      {
        id: "a",
        time: at(1),
        severity: "WARN",
        message: "first, of all",
        hostname: "h1",
        group: "shop",
        json: '{"n":1.5,"k":"x"}',
      },
      {
        id: "b",
        time: at(2),
        severity: "error",
        message: "second",
        hostname: "h2",
        group: "blog",
        json: '{"n":20.5,"k":"y"}',
      },
    ];
    test.each(shippersOn(server))("detects, reads and reports $layout", async (shipper) => {
      const index = await ship(shipper, `layout-one-${shipper.layout}`, lines);
      const found = await read(createSource(index));
      expect(
        found.map(({ id: _, source_id: __, json: ___, time, ...fields }) => ({
          time: printNanos(time),
          ...fields,
        })),
      ).toEqual(
        lines.map(({ message, hostname, group, time, severity }) => ({
          time: printNanos(parseInstant(time ?? "") as Instant),
          severity: parseSeverity(severity),
          message,
          hostname,
          group,
        })),
      );
      for (const [text, ids] of [
        ["severity=error", ["b"]],
        ["severity=warn", ["a"]],
        ["message=second", ["b"]],
        ['message="first, of all"', ["a"]],
        ["hostname=h1", ["a"]],
        ["group:lo", ["b"]],
        ["n>=1.5 n<20.5", ["a"]],
        ["k=y OR absent=1", ["b"]],
        ["absent!=1", ["a", "b"]],
      ] as const) {
        expect({ text, ids: listIds(await read(createSource(index), text)) }).toEqual({ text, ids });
      }
      const report = await logs.cluster.inspect(createSource(index), never);
      expect(report).toMatchObject({ layout: shipper.layout, problems: [] });
      expect(report.newest).toBe(fromMillis(start + 2));
    });
  });

  describe("OpenTelemetry records", () => {
    const time = at(5);
    const millis = start + 5;
    type Own = Readonly<
      Record<string, { document: string; line: Partial<LogLine>; body: object; finds: readonly string[] }>
    >;
    const otel: Own = {
      map: {
        document: `{"@timestamp":"${millis}.500","trace_id":"4bf9","severity_number":17,"attributes":{"http.status":500,"n":200.0},"body":{"structured":{"msg":"boom","n":1,"deep":{"k":[1,2.50]}}},"resource":{"attributes":{"service.name":"shop"}}}`,
        line: { severity: "error", message: '{"msg":"boom","n":1,"deep":{"k":[1,2.50]}}', group: "shop" },
        body: { "http.status": 500, n: 200, msg: "boom", deep: { k: [1, 2.5] }, trace_id: "4bf9" },
        finds: [
          "msg=boom",
          "deep.k=2.50",
          "n=200.0",
          "trace_id=4bf9",
          'message:"boom"',
          "severity=error",
          "http\\.status>=500",
        ],
      },
      flattened: {
        document: `{"@timestamp":"${millis}.0","severity_number":24,"severity_text":"weird","body":{"flattened":{"user":{"name":"ann"}}},"attributes":{"user":null}}`,
        line: { severity: "fatal", message: '{"user":{"name":"ann"}}' },
        body: { user: null },
        finds: ["severity=fatal", "message:ann", "user.name!=ann"],
      },
      list: {
        document: `{"@timestamp":"${millis}.0","severity_number":10,"body":{"structured":[{"a":1},{"a":2}]}}`,
        line: { severity: "info", message: '[{"a":1},{"a":2}]' },
        body: { "@timestamp": `${millis}.0` },
        finds: ["message:2", "a!=1"],
      },
      // The index drops the second of these keys.
      beside: {
        document: `{"@timestamp":"${millis}.1","body":{"text":"t"},"attributes":{"a":{"b":"x"},"a.b":"y"}}`,
        line: { message: "t" },
        body: { a: { b: "x" }, "a.b": "y" },
        finds: ["a.b=x", "a\\.b=y", "a\\.b:y", "a.b!=y", "a\\.b!=x"],
      },
      attributes: {
        document: `{"@timestamp":"${millis}.1","severity_number":25,"body":{"text":"t"},"attributes":{"scope":"mine","@timestamp":7},"scope":{"name":"lib"}}`,
        line: { severity: "unknown", message: "t", group: "lib" },
        body: { scope: "mine", "@timestamp": 7 },
        finds: ["scope=mine", "@timestamp=7", "severity=unknown"],
      },
    };
    const ss4o: Own = {
      map: {
        document: `{"@timestamp":"${time}","observedTimestamp":"${time}","severity":{"number":13},"attributes":{"a.b":1,"data_stream":{"type":"record"}},"body":"{\\"user\\":\\"\\\\u0061nn\\",\\"n\\":200.0,\\"a.b\\":2}","resource":{"service.name":"shop"},"instrumentationScope":{"name":"io"}}`,
        line: { severity: "warn", group: "shop" },
        body: { "a.b": 1, user: "ann", n: 200, resource: { "service.name": "shop" }, scope: { name: "io" } },
        finds: [
          "user=ann",
          "n=200.0",
          "n>199",
          "a\\.b=1",
          "scope.name=io",
          "resource.service\\.name=shop",
          "data_stream.type!=record",
        ],
      },
      text: {
        document: `{"@timestamp":"${time}","observedTimestamp":"${time}","severity":{"text":"E1","number":18},"body":"{no json","resource":{"host.name":"h"}}`,
        line: { severity: "error", message: "{no json", hostname: "h" },
        body: { "@timestamp": time },
        finds: ["message:json", "severity=error", "no!=json", "hostname=h"],
      },
    };
    const prepper: Own = {
      older: {
        document: shippers.olderDataPrepperLogs.document({
          time,
          severity: "fatal",
          message: "m",
          hostname: "h",
          group: "g",
          json: '{"http.method":"GET","n":5,"list":[1]}',
        }),
        line: { severity: "fatal", message: "m", hostname: "h", group: "g" },
        body: { "http.method": "GET", n: 5, list: "[1]", "@timestamp": time },
        finds: [
          "http\\.method=GET",
          "n>4",
          'list="[1]"',
          "http\\@method!=GET",
          "resource.attributes\\.host@name=h",
        ],
      },
    };
    const prepared: readonly (readonly [string, shippers.LogShipper, Own])[] = [
      // Data Prepper also writes to Elasticsearch 7.
      ["data-prepper", shippers.olderDataPrepperLogs, prepper],
    ];
    const sets: typeof prepared =
      server.product === "opensearch"
        ? [["ss4o", shippers.ss4oLogsDynamic, ss4o], ...prepared]
        : server.name === "es7"
          ? prepared
          : [["otel", shippers.otelLogs, otel]];

    test.each(sets)("reads special records of %s", async (layout, shipper, own) => {
      for (const [name, { document, line, body, finds }] of Object.entries(own)) {
        const index = shipper.index(`layout-own-${name}`);
        await logs.cluster.createIndex(index, shipper.definition);
        await logs.cluster.write(index, [[name, document]]);
        const found = await read(createSource(index, { layout: layout }));
        expect(found).toHaveLength(1);
        expect(found[0]).toMatchObject(line);
        expect(JSON.parse(found[0]?.json ?? "")).toMatchObject(body);
        for (const text of finds) {
          expect({ text, ids: listIds(await read(createSource(index, { layout: layout }), text)) }).toEqual({
            text,
            ids: [name],
          });
        }
      }
    });
  });

  describe("several layouts behind one pattern", () => {
    const pattern = "layout-mixed-*";
    const mixed = shippersOn(server);
    const kept: { readonly line: LogLine; readonly shipper: string }[] = [];
    beforeAll(async () => {
      const word = fc.constantFrom("pay", "cart", "slow query", "x-1");
      const drawn = fc.sample(
        fc.record({
          // Many lines of one millisecond, some with nanoseconds.
          millis: fc.nat(120),
          severity: fc.constantFrom("error", "WARN", "info", undefined),
          message: fc.option(word, { nil: undefined }),
          group: fc.option(word, { nil: undefined }),
          n: fc.integer({ min: 0, max: 9 }),
        }),
        { seed: 7, numRuns: 600 * mixed.length },
      );
      for (const [turn, shipper] of mixed.entries()) {
        const lines = drawn.slice(turn * 600, (turn + 1) * 600).map(
          ({ millis, n, ...fields }, at): LoadedLine => ({
            id: `${shipper.layout}-${at}`,
            time: new Date(start + millis).toISOString(),
            ...fields,
            json: `{"n":${n}}`,
          }),
        );
        const index = await ship(shipper, `layout-mixed-${turn}`, lines);
        for (const { id, time, severity, ...line } of lines) {
          const instant = parseInstant(time ?? "") ?? fromMillis(0);
          kept.push({
            shipper: shipper.layout,
            line: {
              ...line,
              id: `${index}/${id}`,
              time: instant,
              source_id: "app",
              severity: parseSeverity(severity),
            },
          });
        }
      }
      kept.sort(({ line: a }, { line: b }) =>
        a.time !== b.time ? (a.time < b.time ? -1 : 1) : a.id < b.id ? -1 : 1,
      );
    });
    const expected = (text: string) => {
      const filter = parse(text);
      return kept.filter(({ line }) => matches(filter, line)).map(({ line }) => line.id);
    };

    test.each(["", "severity=error", "message:pay n>4", "group!=cart severity!=info", "n=3 OR message=x-1"])(
      "answers %j in exact order",
      async (text) => {
        expect((await read(createSource(pattern), text)).map(({ id }) => id)).toEqual(expected(text));
        const falling = await read(createSource(pattern), text, { order: "desc", expectedLines: 50 });
        expect(falling.map(({ id }) => id)).toEqual(expected(text).reverse());
      },
    );

    test("pages cover everything, and a page that fits is not refused", async () => {
      const seen: string[] = [];
      let from: Instant | undefined = range.from;
      while (from !== undefined) {
        const rest: LogQuery = buildQuery(createSource(pattern), "", {
          range: { ...range, from },
          expectedLines: 70,
        });
        from = undefined;
        for await (const batch of logs.cluster.store.lines(rest, never)) {
          seen.push(...batch.map(({ id }) => id));
          from = (endOfMilli(batch.at(-1)?.time ?? range.to) + 1n) as Instant;
          break;
        }
      }
      expect(seen).toEqual(expected(""));
      const all = kept.length;
      const fits = (documentLimit: number) =>
        logs.cluster.store.isWithinLimits?.(
          buildQuery(createSource(pattern), "", { expectedLines: all, documentLimit }),
          never,
        );
      expect(await fits(all + 256 * (mixed.length + 1))).toBe(true);
      expect(await fits(all - 1)).toBe(false);
    });

    test("check reports each layout", async () => {
      const report = await logs.cluster.inspect(createSource(pattern), never);
      expect(report.problems).toEqual([]);
      const layouts = [...new Set(mixed.map(({ layout }) => layout))];
      expect(report.layout.split(", ").toSorted()).toEqual(layouts.toSorted());
      expect(report.limitations.filter((text) => text.includes("read as"))).toHaveLength(layouts.length);
    });

    test("reads a layout that appears during the read by its own rules", async () => {
      const seen: LogLine[] = [];
      let added = false;
      for await (const batch of logs.cluster.store.lines(
        buildQuery(createSource("layout-late-*,layout-mixed-0*")),
        never,
      )) {
        seen.push(...batch);
        if (added) continue;
        added = true;
        const late = { id: "late", time: at(500), message: "late", severity: "error", json: "{}" };
        await ship(shippers.logstashLogs, "layout-late", [late]);
      }
      expect(seen.at(-1)).toMatchObject({ message: "late", severity: "error" });
      expect(new Set(seen.map(({ id }) => id)).size).toBe(601);
    });
  });

  describe("mapping that shows two layouts", () => {
    test("is decided by its documents", async () => {
      const properties = {
        "@timestamp": { type: "date" },
        event: { properties: { dataset: { type: "keyword" } } },
        "@version": { type: "keyword" },
      };
      for (const name of ["a", "b"])
        await logs.cluster.createIndex(`layout-both-${name}`, { mappings: { properties } });
      await logs.cluster.write("layout-both-a", [
        ["a", shippers.logstashLogs.document({ time: at(1), severity: "error", group: "cron", json: "{}" })],
      ]);
      await logs.cluster.write("layout-both-b", [
        ["b", printDocument({ time: at(2), severity: "error", group: "nginx", json: "{}" })],
      ]);
      const found = await read(createSource("layout-both-*"));
      expect(found.map(({ severity, group }) => [severity, group])).toEqual([
        ["error", "cron"],
        ["error", "nginx"],
      ]);
    });
  });

  describe("documents without a known layout", () => {
    const documents = [
      { log: "tail without a parser\n", level: "error" },
      { message: "no tag key", level: "error" },
      { container_id: "c", container_name: "/web", source: "stderr", log: "by Docker" },
      { "@version": "1", message: "by syslog", log: { syslog: { severity: { code: 3 } } } },
    ];
    test("keep message and severity, each in its own index", async () => {
      for (const [turn, document] of documents.entries()) {
        const index = `layout-shown-${turn}`;
        await logs.cluster.createIndex(index, {});
        await logs.cluster.write(index, [["a", JSON.stringify({ "@timestamp": at(turn), ...document })]]);
        expect((await read(createSource(index), "severity=error")).map(({ message }) => message)).toEqual([
          (document.message ?? String(document.log)).trim(),
        ]);
      }
      const all = await read(createSource("layout-shown-*"));
      expect(all.map(({ severity }) => severity)).toEqual(documents.map(() => "error"));
      expect(listIds(await read(createSource("layout-shown-*"), "message:by severity=error"))).toHaveLength(
        2,
      );
    });
  });

  test("prints a structured Fluent Bit body without text as compact JSON", async () => {
    await logs.cluster.createIndex("layout-structured", {});
    const documents = ['{"msg":"hi there","n":1.50}', "{}", "[]", "null"].map(
      (log, turn): [string, string] => [
        `${turn}`,
        `{"@timestamp":"${at(turn)}","kubernetes":{"pod_name":"p","host":"h"},"log":${log}}`,
      ],
    );
    // One request each, so that the first object decides the mapping.
    for (const document of documents.toReversed()) await logs.cluster.write("layout-structured", [document]);
    const lines = await read(createSource("layout-structured"));
    expect(lines.map(({ message }) => message)).toEqual([
      '{"msg":"hi there","n":1.50}',
      "{}",
      undefined,
      undefined,
    ]);
    for (const [text, ids] of [
      ['message:"hi there"', ["0"]],
      ["message:{", ["0", "1"]],
      ["message!:{", ["2", "3"]],
      ["log.n=1.50", ["0"]],
    ] as const) {
      expect({ text, ids: listIds(await read(createSource("layout-structured"), text)) }).toEqual({
        text,
        ids,
      });
    }
  });
});
