// Random documents with awkward values, and queries drawn from them. Two indices behind one pattern map the same names
// differently: one by hand with every type that the filter compiler treats separately, the other one dynamically.
import fc from "fast-check";
import type { ShippableLine } from "../support/elastic/log-shippers.ts";

export interface Corpus {
  readonly mapped: readonly string[];
  readonly dynamic: readonly string[];
}

export function mappedDefinition(product: "elasticsearch" | "opensearch", version: string): object {
  const flattened = product === "elasticsearch" ? "flattened" : "flat_object";
  // Types of modules that the Elasticsearch test servers lack; there these names are not mapped.
  const modules = {
    wild: { type: "wildcard" },
    plain: { type: "match_only_text" },
    same: { type: "constant_keyword", value: "foo" },
  };
  return {
    settings: {
      number_of_shards: 2,
      number_of_replicas: 0,
      analysis: { normalizer: { lower: { type: "custom", filter: ["lowercase"] } } },
    },
    mappings: {
      dynamic: false,
      properties: {
        "@timestamp": { type: version.startsWith("7") ? "date" : "date_nanos" },
        message: { type: "text" },
        log: { properties: { level: { type: "keyword", ignore_above: 1024 } } },
        host: { properties: { name: { type: "keyword", ignore_above: 1024 } } },
        event: { properties: { dataset: { type: "keyword", ignore_above: 8 } } },
        k: { type: "keyword" },
        short: { type: "keyword", ignore_above: 5 },
        low: { type: "keyword", normalizer: "lower" },
        t: { type: "text", fields: { keyword: { type: "keyword", ignore_above: 6 } } },
        n: { type: "long", ignore_malformed: true },
        d: { type: "double" },
        h: { type: "half_float" },
        b: { type: "boolean" },
        when: { type: "date" },
        ip: { type: "ip" },
        flat: { type: flattened },
        off: { type: "object", enabled: false },
        blind: { type: "keyword", index: false, doc_values: false },
        deep: { properties: { k: { type: "keyword" }, t: { type: "text" }, n: { type: "integer" } } },
        nest: { type: "nested", properties: { k: { type: "keyword" }, n: { type: "long" } } },
        copied: { type: "keyword" },
        origin: { type: "keyword", copy_to: "copied" },
        filled: { type: "keyword", null_value: "none" },
        other: { type: "alias", path: "k" },
        ...(product === "opensearch" && modules),
      },
    },
  };
}

/** Fixed mappings: a dynamic one rejects numbers and texts under one name when both arrive first at the same time. */
export const dynamicDefinition = {
  settings: { number_of_shards: 1, number_of_replicas: 0 },
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      n: { type: "keyword" },
      k: { type: "text" },
      d: { type: "double" },
      deep: { properties: { n: { type: "text" } } },
      items: { properties: { n: { type: "long" } } },
    },
  },
};

const words = [
  "foo",
  "Foo",
  "bar",
  "a",
  "error",
  "x_y",
  "foo.bar",
  "é",
  "中文",
  "10",
  "200",
  "http://h/p?q=1",
  "ba*r",
  "-",
  "İ",
  "a\\b",
  'q"q',
  "user-42",
];
const word = fc.constantFrom(...words);
const separator = fc.constantFrom(" ", " ", "  ", "\t", ", ", "-", "/", ".", "");
const phrase = fc
  .array(fc.tuple(word, separator), { minLength: 0, maxLength: 5 })
  .map((parts) => parts.map(([a, b]) => a + b).join(""));
const long = fc
  .tuple(word, fc.constantFrom(254, 255, 256, 300), word)
  .map(([a, size, b]) => a + "z".repeat(size) + b);
const text = fc.oneof(
  { weight: 8, arbitrary: phrase },
  { weight: 1, arbitrary: long },
  { weight: 4, arbitrary: word },
);
const number = fc.constantFrom(
  "0",
  "1",
  "-1",
  "5",
  "200",
  "200.0",
  "2e2",
  "5.7",
  "0.1",
  "9007199254740993",
  "-3.25",
  "404",
);
const quoted = text.map((value) => JSON.stringify(value));
const many = (one: fc.Arbitrary<string>) =>
  fc.oneof(
    { weight: 4, arbitrary: one },
    { weight: 1, arbitrary: fc.array(one, { maxLength: 3 }).map((all) => `[${all.join(",")}]`) },
  );
const maybe = (one: fc.Arbitrary<string>) =>
  fc.oneof({ weight: 3, arbitrary: one }, { weight: 1, arbitrary: fc.constant("null") });
const level = fc.constantFrom(
  "info",
  "INFO",
  "Warning",
  "ERR",
  "error",
  "crit",
  "panic",
  "weird",
  "debug",
  "LOG",
  "Note",
  "notification",
  "I",
  "w",
  "E",
  "SEVERE",
  "DEBUG5",
  "WARN2",
  // Numbers of pino, and one of nobody.
  "50",
  "30",
  "7",
);

function fields(shape: Readonly<Record<string, fc.Arbitrary<string>>>): fc.Arbitrary<string> {
  return fc
    .record(
      Object.fromEntries(Object.entries(shape).map(([name, value]) => [name, fc.option(value, { freq: 2 })])),
    )
    .map((found) =>
      Object.entries(found)
        .flatMap(([name, value]) => (value === null ? [] : [`${JSON.stringify(name)}:${value}`]))
        .join(","),
    )
    .map((inner) => `{${inner}}`);
}

const small = fc.constantFrom("1", "2", "30", "-4", '"7"');
const shared = {
  message: many(quoted),
  log: fields({ level: level.map((value) => JSON.stringify(value)) }),
  host: fields({ name: many(quoted) }),
  event: fields({ dataset: quoted }),
  t: maybe(many(quoted)),
  b: fc.constantFrom("true", "false", '"true"', '""', "[true,false]"),
  when: fc.constantFrom('"2024-01-15T10:30:00.000Z"', '"2024-01-15"'),
};
const mapped = fields({
  ...shared,
  k: maybe(many(fc.oneof(quoted, number))),
  short: many(quoted),
  low: many(quoted),
  n: many(fc.oneof(small, fc.constantFrom('"abc"', "5.7", "200", "200.0", "9007199254740993"))),
  d: many(number),
  h: many(fc.constantFrom("1.5", "200", "0.1")),
  ip: fc.constantFrom('"10.0.0.1"', '"::1"'),
  flat: fields({ a: many(fc.oneof(quoted, number)), "x.y": quoted, o: fields({ p: quoted }) }),
  off: fields({ a: fc.oneof(quoted, number) }),
  blind: quoted,
  deep: fields({ k: many(quoted), t: quoted, n: small }),
  "deep.k": quoted,
  nest: fc.array(fields({ k: quoted, n: small }), { maxLength: 3 }).map((all) => `[${all.join(",")}]`),
  origin: quoted,
  copied: quoted,
  filled: maybe(quoted),
  wild: many(quoted),
  plain: many(quoted),
  same: fc.constant('"foo"'),
  unknown: fc.oneof(quoted, number),
});
const dynamic = fields({
  ...shared,
  k: many(fc.oneof(quoted, number)),
  n: many(fc.oneof(quoted, number)),
  d: many(number),
  deep: fields({ k: many(quoted), t: quoted, n: small }),
  items: fc.array(fields({ sku: quoted, n: small }), { maxLength: 3 }).map((all) => `[${all.join(",")}]`),
});

export const corpus: fc.Arbitrary<Corpus> = fc.record({
  mapped: fc.array(mapped, { minLength: 30, maxLength: 60 }),
  dynamic: fc.array(dynamic, { minLength: 20, maxLength: 40 }),
});
/** The same for runs that shrink what they find. */
export const shrinkingCorpus: fc.Arbitrary<Corpus> = fc.record({
  mapped: fc.array(mapped, { maxLength: 60, size: "max" }),
  dynamic: fc.array(dynamic, { maxLength: 40, size: "max" }),
});

/**
 * Lines for any layout. The values of a name have one type, since the first of them decides the mapping for most shippers.
 * A message may be the JSON of an object, which some layouts parse.
 */
const whole = fc.constantFrom("1", "2", "30", "-4");
const inside = fields({ k: quoted, n: whole, deep: fields({ k: quoted }) });
const drawnLine: fc.Arbitrary<ShippableLine> = fc.record({
  message: fc.option(fc.oneof({ weight: 5, arbitrary: text }, { weight: 1, arbitrary: inside }), {
    nil: undefined,
  }),
  severity: fc.option(level, { nil: undefined }),
  hostname: fc.option(word, { nil: undefined }),
  group: fc.option(text, { nil: undefined }),
  json: fields({
    k: maybe(many(quoted)),
    t: quoted,
    n: many(whole),
    d: many(fc.constantFrom("0.1", "5.7", "200.0", "-3.25", "1.5e2")),
    big: fc.constantFrom("9007199254740993", "9007199254740992", "1"),
    b: fc.constantFrom("true", "false"),
    "x.y": quoted,
    // What the layouts of containers take for a severity, where a line has no level.
    stream: fc.constantFrom('"stdout"', '"stderr"', '"odd"'),
    items: fc.array(fields({ sku: quoted, n: whole }), { maxLength: 3 }).map((all) => `[${all.join(",")}]`),
    empty: fc.constantFrom("null", "[]", "{}"),
  }),
});
export const drawnLines = (least: number): fc.Arbitrary<readonly ShippableLine[]> =>
  fc.array(drawnLine, { minLength: least, maxLength: 60, size: "max" });

const names = [
  "message",
  "severity",
  "hostname",
  "group",
  "k",
  "short",
  "low",
  "t",
  "n",
  "d",
  "h",
  "b",
  "when",
  "ip",
  "flat.a",
  "flat.x\\.y",
  "flat.x.y",
  "flat.o.p",
  "off.a",
  "blind",
  "deep.k",
  "deep\\.k",
  "deep.t",
  "deep.n",
  "nest.k",
  "nest.n",
  "nest.0.k",
  "copied",
  "origin",
  "filled",
  "other",
  "wild",
  "plain",
  "same",
  "unknown",
  "items.sku",
  "items.0.sku",
  "items.1.n",
  "k.0",
  "t.keyword",
  "log.level",
  "absent",
  "@timestamp",
  "zone\\.",
  "big",
  "x\\.y",
  "x.y",
  "empty",
  "trace_id",
  "resource",
];
const part = fc.oneof(
  { weight: 4, arbitrary: word },
  { weight: 3, arbitrary: text },
  {
    weight: 2,
    arbitrary: fc
      .tuple(phrase, fc.nat(6), fc.nat(8))
      .map(([value, from, size]) => value.slice(from, from + size)),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      "zz",
      "z".repeat(60),
      "o b",
      "oo",
      "",
      "true",
      "rue",
      "2024",
      "info",
      "err",
      "unknown",
    ),
  },
  { weight: 2, arbitrary: number },
);
const severityPart = fc.constantFrom(
  "error",
  "warn",
  "info",
  "critical",
  "fatal",
  "debug",
  "err",
  "unknown",
  "o",
);
const textOperator = fc.constantFrom("=", "!=", ":", "!:");
const compared = (name: fc.Arbitrary<string>, value: fc.Arbitrary<string>) =>
  fc
    .tuple(name, textOperator, value)
    .map(([name, operator, value]) => `${name}${operator}"${value.replace(/["\\]/g, "\\$&")}"`);
const leaf = fc.oneof(
  { weight: 5, arbitrary: compared(fc.constantFrom(...names), part) },
  // Fields that every layout has and most queries name.
  { weight: 1, arbitrary: compared(fc.constantFrom("message", "hostname", "group"), part) },
  { weight: 1, arbitrary: compared(fc.constant("severity"), severityPart) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.constantFrom(...names), fc.constantFrom(">", ">=", "<", "<="), number)
      .map(([name, operator, value]) => `${name}${operator}${value}`),
  },
);
export const query: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: leaf },
  { weight: 1, arbitrary: fc.tuple(leaf, leaf).map(([a, b]) => `${a} ${b}`) },
  { weight: 1, arbitrary: fc.tuple(leaf, leaf).map(([a, b]) => `${a} OR ${b}`) },
  { weight: 1, arbitrary: fc.tuple(leaf, leaf, leaf).map(([a, b, c]) => `(${a} OR ${b}) AND ${c}`) },
);
