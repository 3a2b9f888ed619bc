// What an index is asked of spans: every document that is meant is among the hits, and a range does not read its past.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Placed, placeForms, type SpanForm, spanProfiles } from "#resolvers/elastic/layout.ts";
import { readKnowledge } from "#resolvers/elastic/mapping.ts";
import { endsWithin, idSpellings, isNarrowed, isSelected } from "#resolvers/elastic/narrow.ts";
import { all, none, type Query } from "#resolvers/elastic/query.ts";
import { normaliseId } from "#resolvers/elastic/span.ts";
import { fromMillis, type Instant, parseInstant } from "#src/time.ts";
import { apm, dataPrepper, jaeger, otel, type Shipper } from "../../support/shippers.ts";

function placed(shipper: Shipper, over: object = {}, entry?: SpanForm["entry"]): Placed<SpanForm> {
  const [definition] = Object.values(shipper.indices("p"));
  const { mappings } = definition as { mappings: { properties: object } };
  const properties = { ...mappings.properties, ...over };
  const knowledge = readKnowledge({
    index: {
      mappings: { ...mappings, properties },
      settings: { index: { version: { created: "8190099" } } },
    },
  });
  const product = { name: "Elasticsearch", version: "8", listsIgnored: true } as const;
  const { spans } = placeForms(knowledge, [...spanProfiles.values()], product);
  const first = entry === undefined ? spans[0] : spans.find(({ form }) => form.entry === entry);
  if (first === undefined) throw new Error(`${shipper.name} is not recognised`);
  return first;
}

type Fields = Readonly<Record<string, bigint>>;

/** A range as a server reads it: dates by their milliseconds. */
function hits(query: Query, fields: Fields): boolean {
  if (query === all) return true;
  if (query === none) return false;
  const { bool, range } = query as {
    bool?: Record<string, Query[]>;
    range?: Record<string, Record<string, unknown>>;
  };
  if (bool !== undefined) {
    const { filter = [], should = [], must_not = [] } = bool;
    return (
      filter.every((inner) => hits(inner, fields)) &&
      (should.length === 0 || should.some((inner) => hits(inner, fields))) &&
      !must_not.some((inner) => hits(inner, fields))
    );
  }
  const [[name, bounds] = ["", {}]] = Object.entries(range ?? {});
  const value = fields[name];
  if (value === undefined) throw new Error(`not a range: ${JSON.stringify(query)}`);
  const bound = (text: unknown): bigint => parseInstant(String(text)) ?? BigInt(String(text));
  return (
    (bounds.gte === undefined || value >= bound(bounds.gte)) &&
    (bounds.lte === undefined || value <= bound(bounds.lte))
  );
}

const base = Date.UTC(2026, 0, 15);
const instant = fc
  .tuple(fc.integer({ min: -100_000, max: 100_000 }), fc.bigInt({ min: 0n, max: 999_999n }))
  .map(([millis, nanos]) => (fromMillis(base + millis) + nanos) as Instant);
const length = fc.oneof(
  fc.bigInt({ min: 0n, max: 3_000_000n }),
  fc.bigInt({ min: 0n, max: 200_000_000_000n }),
  fc.bigInt({ min: 0n, max: 400n * 86_400_000_000_000n }),
);

describe("a range by the end", () => {
  const layouts: readonly (readonly [string, Placed<SpanForm>, (start: bigint, end: bigint) => Fields])[] = [
    [
      "jaeger",
      placed(jaeger),
      (start, end) => ({ startTime: start / 1_000n, duration: end / 1_000n - start / 1_000n }),
    ],
    [
      "apm",
      placed(apm),
      (start, end) => ({
        "timestamp.us": start / 1_000n,
        "transaction.duration.us": end / 1_000n - start / 1_000n,
      }),
    ],
    [
      "otel",
      placed(otel),
      (start, end) => ({ "@timestamp": (start / 1_000_000n) * 1_000_000n, duration: end - start }),
    ],
    ["data-prepper", placed(dataPrepper), (_, end) => ({ endTime: end })],
  ];

  test.each(layouts)("of %s finds all that is meant, and little of what is long past", (_, form, index) => {
    fc.assert(
      fc.property(instant, instant, instant, length, (a, b, end, duration) => {
        const range = a < b ? { from: a, to: b } : { from: b, to: a };
        const query = endsWithin(form, range);
        const hit = hits(query, index(end - duration, end));
        if (end >= range.from && end <= range.to) expect(hit).toBe(true);
        const least = duration > 1_000_000n ? duration : 1_000_000n;
        if (end < range.from - 8n * least - 1_000_000n) expect(hit).toBe(false);
        if (end - duration > range.to + 1_000_000n) expect(hit).toBe(false);
      }),
      { numRuns: 500 },
    );
  });

  test("without an indexed duration everything that started before its end is read", () => {
    const form = placed(jaeger, { duration: { type: "long", index: false } });
    const query = endsWithin(form, { from: fromMillis(base), to: fromMillis(base + 1) });
    expect(query).toEqual({
      range: { startTime: expect.objectContaining({ lte: String((base + 1) * 1_000 + 999) }) },
    });
  });
});

test("ids are asked for in every spelling that is read as them", () => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 1n, max: 2n ** 128n - 1n }),
      fc.bigInt({ min: 1n, max: 2n ** 64n - 1n }),
      (trace, span) => {
        for (const [number, digits] of [
          [trace, 32],
          [trace >> 64n || 1n, 32],
          [span, 16],
        ] as const) {
          const id = number.toString(16).padStart(digits, "0");
          expect(idSpellings(id)).toEqual(expect.arrayContaining([id, number.toString(16)]));
          expect(idSpellings(id).map((text) => normaliseId(text, digits))).toEqual(
            idSpellings(id).map(() => id),
          );
        }
      },
    ),
  );
});

describe("what an index cannot answer for narrows nothing", () => {
  const text = { type: "text" };
  const settings = {
    actionAttribute: "appsignal.action_name",
    namespaceAttribute: "appsignal.namespace",
  };

  test("names that are text without a keyword", () => {
    expect(isSelected(placed(otel, { kind: text }), "calls")).toBe(all);
    expect(isNarrowed(placed(jaeger, { operationName: text }), { name: "GET" }, settings)).toBe(all);
    expect(isNarrowed(placed(jaeger), { name: "GET" }, settings)).not.toBe(all);
  });

  test("a kind that an attribute tells", () => {
    const spans = placed(apm, { "labels.db_system_name": { type: "keyword" } }, "never");
    expect(JSON.stringify(isSelected(spans, "calls"))).toContain(
      '{"exists":{"field":"labels.db_system_name"}}',
    );
    expect(JSON.stringify(isSelected(spans, "calls"))).not.toContain("span_attributes");
  });

  test("values beyond ignore_above, and keywords with a normalizer", () => {
    expect(isNarrowed(placed(jaeger), { name: "x".repeat(257) }, settings)).toBe(all);
    const folded = { type: "keyword", normalizer: "lowercase" };
    expect(isNarrowed(placed(jaeger, { operationName: folded }), { name: "GET" }, settings)).toBe(all);
  });

  test("numbers that a field does not hold as they are spelled", () => {
    const revision = (type: object, value: string) =>
      isNarrowed(
        placed(dataPrepper, { "resource.attributes.service.version": type }),
        { revision: value },
        settings,
      );
    const double = { type: "double" };
    expect(revision(double, "20260115")).not.toBe(all);
    for (const value of ["1.5", "1.50", "1e3", "20240101123456789"])
      expect(revision(double, value)).toBe(all);
    expect(revision({ type: "integer" }, "99999999999")).toBe(all);
    expect(revision({ type: "long", ignore_malformed: true }, "v1")).toBe(all);
  });

  test("an entry without a name has the action that is made for it", () => {
    expect(isNarrowed(placed(dataPrepper), { action: "unknown" }, settings)).toBe(all);
  });

  test("a length or time that the field's type cannot be asked for", () => {
    const text = JSON.stringify(isNarrowed(placed(jaeger), { minDuration: 10n ** 40n }, settings));
    expect(text).toBe('{"range":{"duration":{"gte":"9223372036854775807"}}}');
    const short = placed(jaeger, { duration: { type: "integer" } });
    expect(isNarrowed(short, { minDuration: 10n ** 40n }, settings)).toBe(all);
    const query = endsWithin(short, { from: fromMillis(base), to: fromMillis(base + 1) });
    expect(JSON.stringify(query)).not.toContain('"duration"');
  });

  test("an action may be the attribute's or the span's name", () => {
    const query = JSON.stringify(isNarrowed(placed(dataPrepper), { action: "A#b" }, settings));
    expect(query).toContain('"name":["A#b"]');
    // Not mapped yet: whatever the next document makes of it.
    expect(query).toContain('{"exists":{"field":"attributes.appsignal.action_name"}}');
  });

  test("a namespace may be the attribute's or the kind's", () => {
    const namespaceField = "attributes.appsignal.namespace";
    const narrowed = (namespaces: readonly string[], type: object = { type: "keyword" }) =>
      isNarrowed(placed(dataPrepper, { [namespaceField]: type }), { namespaces }, settings);
    const named = (...names: string[]) => ({ terms: { [namespaceField]: names } });
    expect(JSON.stringify(narrowed(["admin", "shop"]))).toContain(JSON.stringify(named("admin", "shop")));
    expect(JSON.stringify(narrowed(["admin"]))).not.toContain("server");
    // The attribute may be there and say so, whatever the kind.
    const web = JSON.stringify(narrowed(["web"]));
    expect(web).toContain(JSON.stringify(named("web")));
    expect(web).toContain('"value":"span_kind_server"');
    // Every kind but one.
    expect(narrowed(["background"])).toBe(all);
    expect(narrowed(["admin", "background"])).toBe(all);
    expect(narrowed(["admin"], text)).toBe(all);
    expect(narrowed(["x".repeat(9)], { type: "keyword", ignore_above: 8 })).toBe(all);
    expect(narrowed(["admin"], { type: "keyword", normalizer: "lowercase" })).toBe(all);
  });
});
