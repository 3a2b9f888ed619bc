// What each field type and operator compiles to on both products. The golden files are the table. That its bounds hold is
// proved on real servers (test/backends/elastic/filter-bounds.test.ts), which have to be run when a golden file changes.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import { matchAll, matchNone, measureQuery, type Query } from "#resolvers/elastic/client/query-dsl.ts";
import { type LogLayout, logLayouts, parseLogLayout } from "#resolvers/elastic/layout/log-layout.ts";
import {
  chooseFreshness,
  compileBounds,
  compileByGroup,
  compileFilter,
  listUnnarrowedFields,
} from "#resolvers/elastic/query/filter-compiler.ts";
import { waitForTurn } from "#src/core/async/turns.ts";
import { requireKey } from "#src/core/collections.ts";
import { parse } from "#src/log-query/parse.ts";
import { startProcessorTime } from "../../../support/cpu-time.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const never = new AbortController().signal;

/** By the name of the field. */
const types: Readonly<Record<string, object>> = {
  keyword: { type: "keyword" },
  limited: { type: "keyword", ignore_above: 5 },
  normalized: { type: "keyword", normalizer: "lower" },
  text: { type: "text" },
  multi: { type: "text", fields: { keyword: { type: "keyword", ignore_above: 256 } } },
  only: { type: "match_only_text" },
  analyzed: { type: "text", analyzer: "english" },
  wild: { type: "wildcard" },
  constant: { type: "constant_keyword", value: "x" },
  long: { type: "long" },
  lenient: { type: "long", ignore_malformed: true },
  double: { type: "double" },
  scaled: { type: "scaled_float", scaling_factor: 10 },
  boolean: { type: "boolean" },
  date: { type: "date" },
  nanos: { type: "date_nanos" },
  ip: { type: "ip" },
  version: { type: "version" },
  flattened: { type: "flattened" },
  flat: { type: "flat_object" },
  nested: { type: "nested", properties: { k: { type: "keyword" } } },
  object: { properties: { k: { type: "keyword" } } },
  off: { type: "object", enabled: false },
  blind: { type: "keyword", index: false },
  filled: { type: "keyword", null_value: "none" },
  copied: { type: "keyword" },
  origin: { type: "keyword", copy_to: "copied" },
  alias: { type: "alias", path: "keyword" },
};
const paths = [
  ...Object.keys(types).filter((name) => !["nested", "object", "off"].includes(name)),
  "flattened.k",
  "flat.k",
  "nested.k",
  "object",
  "object.k",
  "object\\.k",
  "off.k",
  "keyword.0",
  "0",
  "unmapped",
  "unmapped.k",
];
const texts = ["=ab", "=abcdefgh", '="two words"', "!=ab", ":ab", ':"a*b?\\\\c"', ':"one two three"', "!:ab"];
const numbers = ["=200", "!=200", ">200", ">=200", "<200", "<=-3.5", ">1e400"];
const lineFields = [
  "message=ab",
  "message:ab",
  "message!=ab",
  "free",
  "severity=error",
  "severity!=error",
  "severity=unknown",
  "severity:warn",
  "severity=nothing",
  "hostname=h",
  "hostname!:h",
  "group=g",
];

function knowledge(version: string) {
  return readIndexMetadata({
    "logs-1": {
      mappings: {
        properties: {
          "@timestamp": { type: "date" },
          message: { type: "text" },
          log: { properties: { level: { type: "keyword", ignore_above: 1024 } } },
          host: { properties: { name: { type: "keyword", ignore_above: 1024 } } },
          event: { properties: { dataset: { type: "keyword", ignore_above: 1024 } } },
          ...types,
        },
      },
      settings: { index: { number_of_shards: "1", version: { created: version } } },
    },
  });
}

function print(query: Query): string {
  if (query === matchAll) return "ALL";
  return query === matchNone ? "NONE" : JSON.stringify(query);
}

const versions = { Elasticsearch: "8.19.8", OpenSearch: "2.19.1" } as const;
const products = [
  ["Elasticsearch", versions.Elasticsearch, "8190899"],
  ["OpenSearch", versions.OpenSearch, "136408127"],
] as const;
const ecs = logLayouts.get("ecs");
if (ecs === undefined) throw new Error("no layout ecs");

describe.each(products)("filter compiler on %s", (name, version, created) => {
  const known = knowledge(created);
  const [group] = known.groups;
  if (group === undefined) throw new Error("no group");
  const product = describeProduct(name, version);
  const bounds = (query: string) => compileBounds(parse(query), group, ecs, product);

  test("names the fields that no index can narrow by as queries spell them", () => {
    const filter = parse(String.raw`user\ id=5 \message=x a\.b=x message=x`);
    const names = listUnnarrowedFields(filter, { ...known, opaque: true }, ecs, product);
    expect(names).toEqual([String.raw`user\ id`, String.raw`\message`, String.raw`a\.b`, "message"]);
  });

  test("compiles each field type and operator as in the golden file", async () => {
    const rows = [...paths.map((path) => [...texts, ...numbers].map((end) => path + end)), lineFields];
    const table = rows.flatMap((queries) => {
      // Queries with the same bounds share a row.
      const byBounds = new Map<string, string[]>();
      for (const query of queries) {
        const { lower, upper } = bounds(query);
        const text = `  lower ${print(lower)}\n  upper ${lower === upper ? "the same" : print(upper)}\n`;
        byBounds.set(text, [...(byBounds.get(text) ?? []), query]);
      }
      return [...byBounds].map(([text, queries]) => `${queries.join("   ")}\n${text}`);
    });
    await expect(table.join("")).toMatchFileSnapshot(`golden/filter-${name.toLowerCase()}.txt`);
  });

  test("combines bounds of and, or and not as in the golden file", async () => {
    const queries = [
      "keyword=a long>5",
      "keyword=a OR boolean=true",
      "keyword=a OR unmapped=b",
      "keyword=a unmapped=b",
      "(keyword=a OR keyword=b) (boolean=true OR boolean!=false)",
      "keyword!=a boolean!=true",
    ];
    const sent: string[] = [];
    for (const query of queries) {
      const { lower, upper } = bounds(query);
      const request = await compileFilter(parse(query), known, ecs, product, never);
      sent.push(`${query}\n  lower ${print(lower)}\n  upper ${print(upper)}\n  sent ${print(request)}\n`);
    }
    await expect(sent.join("")).toMatchFileSnapshot(`golden/sent-${name.toLowerCase()}.txt`);
  });

  // 400 pods under two of their names. A query of too many clauses finds everything.
  test("asks for as many clauses for many values of a field as for two", async () => {
    const askFor = (count: number) => {
      const terms = Array.from({ length: count }, (_, n) => `keyword=web-${n} OR unmapped=web-${n}`);
      return compileFilter(parse(terms.join(" OR ")), known, ecs, product, never);
    };
    const two = measureQuery(await askFor(2));
    expect(two.clauses).toBeGreaterThan(2);
    expect(measureQuery(await askFor(400))).toEqual(two);
    expect(JSON.stringify(await askFor(400))).toContain('"web-399"');
  });

  test("swaps the bounds under negation", () => {
    for (const path of paths) {
      for (const [positive, negative] of [
        ["=ab", "!=ab"],
        [":ab", "!:ab"],
      ]) {
        const { lower, upper } = bounds(`${path}${positive}`);
        const swapped = bounds(`${path}${negative}`);
        const opposite = (query: Query) =>
          query === matchAll
            ? "NONE"
            : query === matchNone
              ? "ALL"
              : JSON.stringify({ bool: { must_not: [query] } });
        expect([print(swapped.lower), print(swapped.upper)]).toEqual([opposite(upper), opposite(lower)]);
      }
    }
  });
});

describe("filter compiler, where the index differs from the document", () => {
  const product = describeProduct("Elasticsearch", "8.19.8");
  function upper(layout: LogLayout, mappings: object, query: string): string {
    const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
    const [group] = readIndexMetadata({ "logs-1": { mappings, settings } }).groups;
    if (group === undefined) throw new Error("no group");
    return print(compileBounds(parse(query), group, layout, product).upper);
  }

  test.each(["message:boom", "severity=error", "hostname=h", "log.level=error"])(
    "narrows nothing by a field that a runtime field hides: %s",
    (query) => {
      const names = ["message", "log.level", "host.name"];
      const runtime = Object.fromEntries(names.map((name) => [name, { type: "long" }]));
      expect(upper(ecs, { runtime }, query)).toBe("ALL");
    },
  );

  test.each([
    { type: "keyword", copy_to: "target" },
    { type: "keyword", copy_to: ["other", "target"] },
    { type: "keyword", copy_to: "{name}" },
    { type: "keyword", copy_to: "tar{dynamic_type}" },
    { properties: { own: { properties: { value: { type: "keyword", copy_to: "target" } } } } },
  ])("takes no value for the document's in a field that a dynamic template copies to: %j", (mapping) => {
    const mappings = {
      dynamic_templates: [{ labels: { path_match: "labels.*", mapping } }],
      properties: { target: { type: "keyword" }, untouched: { type: "keyword" } },
    };
    const [group] = readIndexMetadata({ "logs-1": { mappings } }).groups;
    if (group === undefined) throw new Error("no group");
    const compile = (query: string) => compileBounds(parse(query), group, ecs, product);
    expect(compile("target=x").lower).toBe(matchNone);
    expect(compile("target!=x").upper).toBe(matchAll);
    expect(compile("untouched=x").lower === matchNone).toBe(mapping.copy_to === "{name}");
  });

  test("looks for an object that stands for the message", () => {
    const layout = parseLogLayout(
      "{ name: own, logs: { time: at, message: [text, msg], structured: payload, severity: [lvl], hostname: h, group: g, json: source, detect: [lvl] } }",
    );
    const payload = { properties: { a: { type: "long" } } };
    expect(upper(layout, { properties: { payload } }, "message:a")).toBe("ALL");
    // No document has it yet.
    expect(upper(layout, {}, "message:a")).toContain('{"exists":{"field":"payload"}}');
    expect(upper(layout, { properties: { payload: { type: "text" } } }, "message:a")).not.toContain(
      "payload",
    );
  });

  test("searches below an object at the name of the message", () => {
    const layout = parseLogLayout(
      "{ name: own, logs: { time: at, message: Body, severity: [lvl], hostname: h, group: g, json: { from: [{ structured: Body }] }, detect: [lvl] } }",
    );
    const Body = { properties: { a: { type: "keyword" } } };
    expect(upper(layout, { properties: { Body } }, "a=x")).toBe(
      '{"bool":{"should":[{"term":{"Body.a":"x"}},{"term":{"_ignored":"Body.a"}}],"minimum_should_match":1}}',
    );
  });

  test.each(["point.lat=1", "span.gte=1", "list.new=x", "list.deep.new=x", "lenient.k=x"])(
    "narrows nothing where a search cannot find the name: %s",
    (query) => {
      const otel = logLayouts.get("otel");
      if (otel === undefined) throw new Error("no layout");
      const list = { type: "nested", properties: { deep: { properties: { k: { type: "keyword" } } } } };
      const lenient = { type: "long", ignore_malformed: true };
      const properties = { point: { type: "geo_point" }, span: { type: "long_range" }, list, lenient };
      expect(upper(otel, { properties: { attributes: { properties } } }, query)).toBe("ALL");
      expect(upper(otel, { properties: { attributes: { properties } } }, "new=x")).toContain("exists");
    },
  );

  test("looks up the severity elsewhere when the level is a number", () => {
    const log = { properties: { level: { type: "long" } } };
    expect(upper(ecs, { dynamic: "false", properties: { log } }, "severity=error")).toBe("ALL");
    expect(upper(ecs, { properties: { log, level: { type: "long" } } }, "severity=error")).not.toBe("ALL");
  });
});

describe("filter compiler, over daily indices with different dynamic mappings", () => {
  const text = { type: "text", fields: { keyword: { type: "keyword", ignore_above: 256 } } };
  const knowledgeOf = (days: number) =>
    readIndexMetadata(
      Object.fromEntries(
        Array.from({ length: days }, (_, day) => {
          const own = { [`label${day}`]: text, ...(day % 2 === 0 ? {} : { level: text }) };
          const properties = { "@timestamp": { type: "date" }, log: text, stream: text, ...own };
          const settings = { index: { number_of_shards: "1", version: { created: "8190899" } } };
          return [`logstash-${day}`, { mappings: { properties }, settings }];
        }),
      ),
    );
  const fluentBit = logLayouts.get("fluent-bit");
  const compiled = async (days: number, query: string, name: keyof typeof versions) => {
    if (fluentBit === undefined) throw new Error("no layout");
    const product = describeProduct(name, versions[name]);
    return compileFilter(parse(query), knowledgeOf(days), fluentBit, product, never);
  };

  test.each(["message:boom", "severity=error", "hostname=n1", "severity=error message:boom stream=stderr"])(
    "needs no more clauses for many days than for two: %s",
    async (query) => {
      for (const product of ["Elasticsearch", "OpenSearch"] as const) {
        const two = measureQuery(await compiled(2, query, product)).clauses;
        expect(measureQuery(await compiled(90, query, product)).clauses).toBe(two);
        expect(two).toBeGreaterThan(1);
      }
    },
  );

  test("restricts each query to its own indices and reads unknown indices in full", async () => {
    const asked = JSON.stringify(await compiled(4, "stream=stderr", "OpenSearch"));
    expect(asked).toContain('{"terms":{"_index":["logstash-0","logstash-1","logstash-2","logstash-3"]}}');
    const severity = JSON.stringify(await compiled(4, "severity=error", "OpenSearch"));
    expect(severity).toContain('{"terms":{"_index":["logstash-0","logstash-2"]}}');
    expect(severity).toContain('{"terms":{"_index":["logstash-1","logstash-3"]}}');
    expect(severity).toContain('"must_not":[{"terms":{"_index":["logstash-0","logstash-1"');
  });

  test("compiles for all days what it compiles for each, where many comparisons let equal days be compiled once", async () => {
    const product = describeProduct("Elasticsearch", "8.19.8");
    const { groups } = knowledgeOf(40);
    const leaf = fc
      .tuple(
        fc.constantFrom(
          "message",
          "severity",
          "stream",
          "log.sub",
          "label1",
          "label7",
          "label1.keyword",
          "level",
          "none",
        ),
        fc.constantFrom("=", ":", "!=", "!:"),
        fc.constantFrom("error", "a", "b"),
      )
      .map((parts) => parts.join(""));
    const query = fc
      .array(fc.tuple(leaf, fc.constantFrom(" ", " OR ")), { minLength: 26, maxLength: 30 })
      .map((parts) => parts.flat().slice(0, -1).join(""));
    let shared = 0;
    await fc.assert(
      fc.asyncProperty(query, fc.constantFrom(ecs, fluentBit), async (text, layout) => {
        if (layout === undefined) throw new Error("no layout");
        const filter = parse(text);
        const bounds = await compileByGroup(filter, groups, layout, product, never);
        for (const group of groups)
          expect(bounds.get(group)).toEqual(compileBounds(filter, group, layout, product));
        if (new Set(bounds.values()).size < groups.length) shared += 1;
      }),
      { numRuns: sampleRuns(200) },
    );
    expect(shared).toBeGreaterThan(0);
  });

  test("ends once nobody waits for the bounds", async () => {
    const stop = new AbortController();
    const gone = new Error("gone");
    const filter = parse("message=a OR message=b OR message=c OR message=d");
    await countTurns(async () => {
      const compiled = compileByGroup(
        filter,
        knowledgeOf(2).groups,
        ecs,
        describeProduct("Elasticsearch", "8.19.8"),
        stop.signal,
      );
      void waitForTurn().then(() => stop.abort(gone));
      await expect(compiled).rejects.toBe(gone);
    });
  });

  test("takes turns with others, and compiles what is equal once", async () => {
    const { groups } = knowledgeOf(300);
    const product = describeProduct("Elasticsearch", "8.19.8");
    const ofEach = (text: (n: number) => string) =>
      parse(Array.from({ length: 1_000 }, (_, n) => text(n)).join(" OR "));
    for (const filter of [ofEach(() => "severity=error"), ofEach((n) => `message:word${n}`)]) {
      const used = startProcessorTime();
      const turns = await countTurns(() => compileByGroup(filter, groups, ecs, product, never));
      // Compiling each comparison for each group would take a minute.
      expect(used()).toBeLessThan(5_000);
      expect(turns).toBeGreaterThan(1);
    }
  });
});

describe("filter compiler, on an index in logsdb mode", () => {
  const settings = { index: { mode: "logsdb", version: { created: "9039001" } } };
  const { groups } = readIndexMetadata({ "logs-1": { mappings: {}, settings } });
  const product = describeProduct("Elasticsearch", "9.2.0");
  const asked = (query: string, name = "ecs") => {
    const [[group], layout] = [groups, logLayouts.get(name)];
    if (group === undefined || layout === undefined) throw new Error("no group or layout");
    return JSON.stringify(compileBounds(parse(query), group, layout, product).upper);
  };

  test("finds a field beyond the field limit by its parent in _ignored", () => {
    expect(asked("hostname=web")).toContain('{"terms":{"_ignored":["host","host.hostname"]}}');
    expect(asked("severity=error")).toContain('{"terms":{"_ignored":["log","log.level"]}}');
    // Attributes are listed one by one.
    expect(asked("a.b=1", "otel")).toContain('["attributes","attributes.a","attributes.a.b"]');
  });
});

test("filter compiler sends no range bound that is invalid for a date field of another index", () => {
  const index = (type: string) => ({ mappings: { properties: { n: { type } } }, settings: {} });
  const upper = (other: string, query: string) => {
    const [group] = readIndexMetadata({ a: index("double"), b: index(other) }).groups;
    if (group === undefined || ecs === undefined) throw new Error("no group");
    return print(compileBounds(parse(query), group, ecs, describeProduct("Elasticsearch", "8.19.8")).upper);
  };
  for (const query of ["n<-5", "n>-5", "n=2e22", "n<10000000000000000000"]) {
    expect(upper("double", query)).toContain("range");
    for (const type of ["date", "date_nanos"]) expect(upper(type, query)).toContain("exists");
  }
  expect(upper("date_nanos", "n>5")).toContain("range");
});

describe("filter compiler, on a dotted key beside an object of its first part", () => {
  // With a flattened `a`, the index drops {"a.b": "x"}; with a field `a.b`, it drops {"a": {"b": "x"}}.
  const otel = logLayouts.get("otel");
  if (otel === undefined) throw new Error("no layout otel");
  const keyword = { type: "keyword" };
  const upperOf = (query: string, keys: object, mappings: object = {}) => {
    const attributes = { type: "passthrough", dynamic: "true", properties: keys };
    const body = { properties: { text: { type: "text" } } };
    const properties = { "@timestamp": { type: "date" }, attributes, body, resource: { enabled: false } };
    const { groups } = readIndexMetadata({
      "logs-1": {
        mappings: { dynamic: "false", properties, ...mappings },
        settings: { index: { version: { created: "8190899" } } },
      },
    });
    const [group] = groups;
    if (group === undefined) throw new Error("no group");
    return compileBounds(parse(query), group, otel, describeProduct("Elasticsearch", "8.19.8")).upper;
  };
  const map = { a: { type: "flattened" } };
  const both = { "a.b": keyword, ...map };
  const asks = (field: string) => expect.stringContaining(JSON.stringify({ term: { [field]: "x" } }));

  test("narrows nothing by a key that only the object holds", () => {
    expect(upperOf("a\\.b=x", map)).toBe(matchAll);
    expect(upperOf("a.b=x", both)).toBe(matchAll);
    expect(upperOf("geo.lat=1", { geo: { type: "geo_point" }, "geo.lat": { type: "float" } })).toBe(matchAll);
    expect(upperOf("a.b.c=x", { ...map, "a.b": { type: "flattened" } })).toBe(matchAll);
  });

  test("narrows by a key that the index holds", () => {
    expect(print(upperOf("a.b=x", map))).toEqual(asks("attributes.a.b"));
    expect(print(upperOf("a\\.b=x", both))).toEqual(asks("attributes.a.b"));
    expect(print(upperOf("ab=x", { ...map, ab: keyword }))).toEqual(asks("attributes.ab"));
    expect(print(upperOf("a\\.b.c=x", { "a.b": { type: "flattened" } }))).toEqual(asks("attributes.a.b.c"));
  });

  test("splits dotted keys where the object has subobjects", () => {
    const attributes = { properties: { a: { type: "flattened" } } };
    const properties = { "@timestamp": { type: "date" }, attributes };
    const mappings = { properties: { ...properties, body: { properties: { text: { type: "text" } } } } };
    expect(print(upperOf("a\\.b=x", {}, mappings))).toEqual(asks("attributes.a.b"));
  });
});

describe("how recent a mapping has to be", () => {
  const toPath = ([key = "", ...rest]: readonly string[]) => [key, ...rest] as const;
  const hiding = [{ texts: { match_mapping_type: "string", mapping: { type: "keyword", ignore_above: 3 } } }];
  const properties = {
    attributes: { type: "flat_object" },
    body: { type: "text" },
    log: { properties: { attributes: { properties: { a: { properties: { b: { type: "keyword" } } } } } } },
  };
  const { groups } = readIndexMetadata({ i: { mappings: { dynamic_templates: hiding, properties } } });
  const product = describeProduct("OpenSearch", "2.19.1");

  test.each([
    ["ss4o", ["resource", "env"], "now"],
    ["ss4o", ["scope", "name"], "now"],
    // As `log.attributes.a@b`, which no mapping has.
    ["data-prepper", ["a.b"], "now"],
    // All that is below a flat object is found at its root.
    ["ss4o", ["k"], "shared"],
  ] as const)("%s, a line by %j: %s", (name, path, freshness) => {
    const layout = requireKey(logLayouts, name);
    const field = { kind: "json", path } as const;
    expect(chooseFreshness([field], { layout, groups }, product)).toBe(freshness);
  });

  test.each([
    ["severity", "recent"],
    ["event.original", "now"],
    ["event.outcome", "recent"],
  ] as const)("beside Elasticsearch's own templates, by %s: %s", (name, freshness) => {
    const mapping = { type: "keyword", index: false, doc_values: false };
    const template = { path_match: ["*event.original", "*gen_ai.agent.description"], mapping };
    const { groups } = readIndexMetadata({
      i: {
        mappings: { dynamic_templates: [{ ecs_non_indexed_keyword: template }], properties: {} },
        settings: { index: { version: { created: "8190899" } } },
      },
    });
    const path = name.split(".");
    const field =
      name === "severity"
        ? ({ kind: "line", name } as const)
        : ({ kind: "json", path: toPath(path) } as const);
    const source = { layout: requireKey(logLayouts, "ecs"), groups };
    expect(chooseFreshness([field], source, describeProduct("Elasticsearch", "8.19.8"))).toBe(freshness);
  });

  test.each([
    // An object is a message by any key in it.
    { kind: "line", name: "message" },
    // A position in an array is in no name of the index.
    { kind: "json", path: ["l", "0", "k"] },
  ] as const)("templates of other names than those of %o may hide it", (field) => {
    const mapping = { type: "keyword", index: false, doc_values: false };
    const dynamic_templates = [{ other: { path_match: ["message.k", "l.k"], mapping } }];
    const { groups } = readIndexMetadata({ i: { mappings: { dynamic_templates, properties: {} } } });
    const source = { layout: requireKey(logLayouts, "ecs"), groups };
    expect(chooseFreshness([field], source, describeProduct("Elasticsearch", "8.19.8"))).toBe("now");
  });
});
