// Upper-bound queries for spans: every matching document is a hit, and a range query does not read everything before it. And
// the lower bound of ends: each hit matches, and few others do.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import { matchAll, matchNone, measureQuery } from "#resolvers/elastic/client/query-dsl.ts";
import { type PlacedForm, placeForms } from "#resolvers/elastic/layout/form-placement.ts";
import { type SpanForm, spanLayouts } from "#resolvers/elastic/layout/span-layout.ts";
import { listAttributePlaces } from "#resolvers/elastic/query/span-field-queries.ts";
import { buildCertainEndTimeQuery, findDurationColumn } from "#resolvers/elastic/query/span-lower-bounds.ts";
import {
  buildErrorEventQuery,
  buildExceptionQuery,
  buildPushdownQuery,
} from "#resolvers/elastic/query/span-pushdown.ts";
import { buildEndTimeQuery } from "#resolvers/elastic/query/span-times.ts";
import { buildSelectionQuery } from "#resolvers/elastic/query/span-upper-bounds.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import { listIdSpellings, normaliseId } from "#src/tracing/spans/span-ids.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";
import { type Fields, hits, placed } from "../../../support/elastic/span-queries.ts";
import { apm } from "../../../support/elastic/span-shippers/apm.ts";
import { dataPrepper } from "../../../support/elastic/span-shippers/data-prepper.ts";
import { jaeger } from "../../../support/elastic/span-shippers/jaeger.ts";
import { otel } from "../../../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../../../support/elastic/span-shippers/shipper.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const site = buildSpanSource("shop", { index: "x", layout: "auto" });

test("no layout names a field for an attribute that is called like a property of every object", () => {
  const named = { "service.name": ["service.name"] };
  expect(listAttributePlaces({ from: [{ named }], omit: [] }, "service.name")).toEqual([
    { name: "service.name" },
  ]);
  for (const key of ["constructor", "toString", "__proto__"])
    expect(listAttributePlaces({ from: [{ named }], omit: [] }, key)).toEqual([]);
});

const base = Date.UTC(2026, 0, 15);
const instant = fc
  .tuple(fc.integer({ min: -100_000, max: 100_000 }), fc.bigInt({ min: 0n, max: 999_999n }))
  .map(([millis, nanos]) => (fromMillis(base + millis) + nanos) as Instant);
const length = fc.oneof(
  fc.bigInt({ min: 0n, max: 3_000_000n }),
  fc.bigInt({ min: 0n, max: 200_000_000_000n }),
  fc.bigInt({ min: 0n, max: 400n * 86_400_000_000_000n }),
);

describe("end time query", () => {
  const layouts: readonly (readonly [
    string,
    PlacedForm<SpanForm>,
    (start: bigint, end: bigint) => Fields,
  ])[] = [
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
    ["data-prepper", placed(dataPrepper), (start, end) => ({ endTime: end, durationInNanos: end - start })],
  ];

  test.each(layouts)("finds every span that ends in the range and few older ones: %s", (_, form, index) => {
    fc.assert(
      fc.property(instant, instant, instant, length, (a, b, end, duration) => {
        const range = a < b ? { from: a, to: b } : { from: b, to: a };
        const query = buildEndTimeQuery(form, range);
        const hit = hits(query, index(end - duration, end));
        if (end >= range.from && end <= range.to) expect(hit).toBe(true);
        const least = duration > 1_000_000n ? duration : 1_000_000n;
        if (end < range.from - 8n * least - 1_000_000n) expect(hit).toBe(false);
        if (end - duration > range.to + 1_000_000n) expect(hit).toBe(false);
      }),
      { numRuns: sampleRuns(500) },
    );
  });

  /** Near the start of a range a span ends after so many hundredths of its duration. */
  const aroundBound = fc.record({
    duration: fc.oneof(length, fc.bigInt({ min: 0n, max: 4_000_000_000n })),
    isNear: fc.boolean(),
    after: fc.bigInt({ min: -20n, max: 120n }),
  });

  test.each(layouts)(
    "certainly finds only spans that end in the range, and nearly all: %s",
    (_, form, index) => {
      const milli = 1_000_000n;
      fc.assert(
        fc.property(instant, instant, instant, aroundBound, (a, b, any, { duration, isNear, after }) => {
          const range = a < b ? { from: a, to: b } : { from: b, to: a };
          const end = isNear ? range.from + (duration * after) / 100n : any;
          const start = end - duration;
          const hit = hits(buildCertainEndTimeQuery(form, range), index(start, end));
          if (end < range.from || end > range.to) expect(hit).toBe(false);
          // A duration counts as an eighth to eight times of it, and a time as up to two milliseconds earlier or later.
          const latest = start + (duration > milli ? 8n * duration : milli) + 3n * milli;
          const earliest = start + (duration > milli ? duration / 8n : 0n) - 2n * milli;
          const isWell = earliest >= range.from && latest <= range.to && duration < 90n * 86_400_000n * milli;
          const canCount = findDurationColumn(form) !== undefined;
          if (isWell) expect(hit).toBe(canCount);
        }),
        { numRuns: sampleRuns(2_000) },
      );
    },
  );

  const floats = ["timestamp.us", "transaction.duration.us"];
  const asFloats = placed(apm, {
    timestamp: { properties: { us: { type: "float" } } },
    transaction: {
      properties: { id: { type: "keyword" }, duration: { properties: { us: { type: "float" } } } },
    },
  });
  const apmFields = (start: bigint, end: bigint, isTimed: boolean): Fields => ({
    "@timestamp": (start / 1_000_000n) * 1_000_000n,
    "transaction.duration.us": (end - start) / 1_000n,
    ...(isTimed ? { "timestamp.us": start / 1_000n } : {}),
  });

  test.each([
    ["longs", placed(apm), []],
    ["floats", asFloats, floats],
  ])("finds every APM span with or without timestamp.us in the range: %s", (_, form, asFloat) => {
    fc.assert(
      fc.property(instant, instant, instant, length, fc.boolean(), (a, b, end, duration, isTimed) => {
        const range = a < b ? { from: a, to: b } : { from: b, to: a };
        const start = end - (duration / 1_000n) * 1_000n;
        const hit = hits(buildEndTimeQuery(form, range), apmFields(start, end, isTimed), asFloat);
        const begun = isTimed ? (start / 1_000n) * 1_000n : (start / 1_000_000n) * 1_000_000n;
        const ended = begun + (duration / 1_000n) * 1_000n;
        if (ended >= range.from && ended <= range.to) expect(hit).toBe(true);
        // A float of microseconds since 1970 is 134 s away from the next.
        const slack = 600_000_000_000n;
        const least = duration > 1_000_000n ? duration : 1_000_000n;
        if (ended < range.from - 8n * least - slack) expect(hit).toBe(false);
        if (begun > range.to + slack) expect(hit).toBe(false);
      }),
      { numRuns: sampleRuns(1_000) },
    );
  });

  test("reads every span that started before the end when the duration is not indexed", () => {
    const form = placed(jaeger, { duration: { type: "long", index: false } });
    const query = buildEndTimeQuery(form, { from: fromMillis(base), to: fromMillis(base + 1) });
    expect(query).toEqual({
      range: { startTime: expect.objectContaining({ lte: String((base + 1) * 1_000 + 999) }) },
    });
  });

  test("sends no bound that another index of the pattern would reject", () => {
    for (const type of ["date", "date_nanos"]) {
      const form = placed(otel, { "@timestamp": { type } });
      const query = JSON.stringify(
        buildEndTimeQuery(form, { from: fromMillis(base), to: fromMillis(base + 1) }),
      );
      const years = [...query.matchAll(/"[gl]te":"(\d{4})-/g)].map(([, year]) => Number(year));
      expect(years.length).toBeGreaterThan(2);
      expect(years.filter((year) => year < 1970 || year > 2261)).toEqual([]);
    }
    const numbers = JSON.stringify(
      buildEndTimeQuery(placed(jaeger), { from: fromMillis(base), to: fromMillis(base + 1) }),
    );
    expect(numbers).not.toMatch(/"gte":"?-/);
  });
});

describe("id query", () => {
  test("searches ids in every spelling that decodes to them", () => {
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
            expect(listIdSpellings(id)).toEqual(
              expect.arrayContaining([id, number.toString(16), id.toUpperCase()]),
            );
            expect(listIdSpellings(id).map((text) => normaliseId(text, digits))).toEqual(
              listIdSpellings(id).map(() => id),
            );
          }
        },
      ),
    );
  });
});

describe("fields that the index cannot answer exactly", () => {
  const text = { type: "text" };
  const named = { exists: { field: "operationName" } };

  test("narrows a text field without keyword by presence only", () => {
    expect(buildSelectionQuery(placed(otel, { kind: text }), "calls")).toBe(matchAll);
    expect(buildPushdownQuery(placed(jaeger, { operationName: text }), { name: "GET" }, site)).toEqual(named);
    expect(buildPushdownQuery(placed(jaeger), { name: "GET" }, site)).toEqual({
      terms: { operationName: ["GET"] },
    });
  });

  test("narrows a kind that is read from an attribute", () => {
    const spans = placed(apm, { "labels.db_system_name": { type: "keyword" } }, "never");
    expect(JSON.stringify(buildSelectionQuery(spans, "calls"))).toContain(
      '{"exists":{"field":"labels.db_system_name"}}',
    );
    expect(JSON.stringify(buildSelectionQuery(spans, "calls"))).not.toContain("span_attributes");
  });

  test("narrows nothing by values over ignore_above or by normalized keywords", () => {
    expect(buildPushdownQuery(placed(jaeger), { name: "x".repeat(257) }, site)).toEqual({
      bool: { should: [named, { term: { _ignored: "operationName" } }], minimum_should_match: 1 },
    });
    const folded = { type: "keyword", normalizer: "lowercase" };
    expect(buildPushdownQuery(placed(jaeger, { operationName: folded }), { name: "GET" }, site)).toEqual(
      named,
    );
  });

  test("narrows by presence when a numeric field loses the spelling", () => {
    const revision = (type: object, value: string) =>
      JSON.stringify(
        buildPushdownQuery(
          placed(dataPrepper, { "resource.attributes.service.version": type }),
          { revision: value },
          site,
        ),
      );
    const double = { type: "double" };
    const present = '{"exists":{"field":"resource.attributes.service.version"}}';
    expect(revision(double, "20260115")).toContain(
      '{"terms":{"resource.attributes.service.version":["20260115"]}}',
    );
    for (const value of ["1.5", "1.50", "1e3", "20240101123456789", "0"])
      expect(revision(double, value)).toContain(present);
    expect(revision({ type: "integer" }, "99999999999")).toContain(present);
    expect(revision({ type: "long", ignore_malformed: true }, "v1")).toContain(present);
  });

  test("narrows nothing by the action of unnamed entries", () => {
    expect(buildPushdownQuery(placed(dataPrepper), { actions: ["unknown"] }, site)).toBe(matchAll);
  });

  test("narrows nothing by an empty name or service", () => {
    const event = { service: "", kind: "client", name: "", revision: undefined } as const;
    const kind = buildPushdownQuery(placed(apm), { kind: "client" }, site);
    expect(buildPushdownQuery(placed(apm), event, site)).toEqual(kind);
  });

  test("clamps a duration to what the field type can hold", () => {
    const text = JSON.stringify(buildPushdownQuery(placed(jaeger), { minDuration: 10n ** 40n }, site));
    expect(text).toBe('{"range":{"duration":{"gte":"9223372036854775807"}}}');
    const short = placed(jaeger, { duration: { type: "integer" } });
    expect(buildPushdownQuery(short, { minDuration: 10n ** 40n }, site)).toBe(matchAll);
    const query = buildEndTimeQuery(short, { from: fromMillis(base), to: fromMillis(base + 1) });
    expect(JSON.stringify(query)).not.toContain('"duration"');
  });

  test("searches an action in the attribute and in the span name", () => {
    const query = JSON.stringify(buildPushdownQuery(placed(dataPrepper), { actions: ["A#b"] }, site));
    expect(query).toContain('"name":["A#b"]');
    // The attribute is not mapped yet, and the next document may map it as anything.
    expect(query).toContain('{"exists":{"field":"attributes.appsignal.action_name"}}');
  });

  test("searches a namespace in the attribute and in the kind", () => {
    const namespaceField = "attributes.appsignal.namespace";
    const narrowed = (namespaces: readonly string[], type: object = { type: "keyword" }) =>
      buildPushdownQuery(placed(dataPrepper, { [namespaceField]: type }), { namespaces }, site);
    const named = (...names: string[]) => ({ terms: { [namespaceField]: names } });
    expect(JSON.stringify(narrowed(["admin", "shop"]))).toContain(JSON.stringify(named("admin", "shop")));
    expect(JSON.stringify(narrowed(["admin"]))).not.toContain("server");
    // The attribute may name the namespace, whatever the kind.
    const web = JSON.stringify(narrowed(["web"]));
    expect(web).toContain(JSON.stringify(named("web")));
    expect(web).toContain('"value":"span_kind_server"');
    // `background` covers every kind but `server`.
    expect(narrowed(["background"])).toBe(matchAll);
    expect(narrowed(["admin", "background"])).toBe(matchAll);
    expect(narrowed(["admin"], text)).toBe(matchAll);
    expect(narrowed(["x".repeat(9)], { type: "keyword", ignore_above: 8 })).toBe(matchAll);
    expect(narrowed(["admin"], { type: "keyword", normalizer: "lowercase" })).toBe(matchAll);
  });
});

describe("tag query", () => {
  const tagged = (shipper: SpanShipper, name: string, value: string, over: object = {}) =>
    JSON.stringify(buildPushdownQuery(placed(shipper, over), { tags: [{ name, value }] }, site));

  test("searches a keyword under its dotted name", () => {
    const field = "attributes.appsignal.tag.region";
    const own = { [field]: { type: "keyword", ignore_above: 8 } };
    expect(tagged(otel, "region", "eu", own)).toBe(`{"terms":{"${field}":["eu"]}}`);
    // Too long for the index: documents with a value at the field, or with one that was left out.
    expect(tagged(otel, "region", "eu-central-1", own)).toContain(`{"term":{"_ignored":"${field}"}}`);
    // A number may be printed differently: 5.0 is read as 5.
    expect(tagged(otel, "region", "5", own)).toContain('"regexp"');
    expect(tagged(otel, "region", "\ud800", own)).not.toContain("d800");
  });

  test("searches lists of key-value pairs, without the value for numbers", () => {
    expect(tagged(jaeger, "region", "eu")).toContain('"tags.value":["eu"]');
    const number = tagged(jaeger, "region", "5");
    expect(number).toContain('"tags.key":["appsignal.tag.region"]');
    expect(number).not.toContain("tags.value");
  });

  test("searches APM labels and numeric labels", () => {
    const text = tagged(apm, "a.b", "eu");
    for (const name of [
      "labels.appsignal_tag_a.b",
      "labels.appsignal_tag_a_b",
      "numeric_labels.appsignal_tag_a.b",
    ])
      expect(text).toContain(`"${name}"`);
  });

  test("searches every replacement of dots by the older Data Prepper template", () => {
    const text = tagged(dataPrepper, "a.b", "eu");
    for (const name of ["appsignal@tag@a@b", "appsignal@tag.a.b", "appsignal.tag.a.b", "appsignal.tag@a@b"])
      expect(text).toContain(`"span.attributes.${name}"`);
    expect(tagged(dataPrepper, "a.b.c.d.e.f.g", "eu")).toBe(JSON.stringify(matchAll));
  });
});

describe("error query", () => {
  const errors = [{ digest: "incident-7" }, { digest: "err_x", exception: "Timeout" }];

  test("searches digests and types within span documents", () => {
    expect(buildExceptionQuery(placed(otel), errors)).toBe(matchNone);
    const pairs = JSON.stringify(buildExceptionQuery(placed(jaeger), errors));
    for (const text of [
      '"logs.fields.key":["appsignal.incident_digest"]',
      '"logs.fields.value":["incident-7","err_x"]',
    ])
      expect(pairs).toContain(text);
    expect(pairs).toContain('"logs.fields.value":["Timeout"]');
    expect(buildExceptionQuery(placed(jaeger), undefined)).toEqual(
      buildSelectionQuery(placed(jaeger), "exceptions"),
    );
  });

  test("searches digests and types in separate event documents", () => {
    const product = describeProduct("Elasticsearch", "8.19.8");
    const found = Object.values(apm.indices("p")).flatMap(
      (own) => placeForms(readIndexMetadata({ index: own }), [...spanLayouts.values()], product).events,
    );
    const [event] = found;
    if (event === undefined) throw new Error("no events");
    const text = JSON.stringify(buildErrorEventQuery(event, errors));
    expect(text).toContain("error.exception.type");
    expect(text).toContain("labels.appsignal_incident_digest");
    expect(JSON.stringify(buildErrorEventQuery(event, undefined))).not.toContain("error.exception.type");
  });
});

describe("clause limit", () => {
  const texts = (what: string) => Array.from({ length: 5_000 }, (_, n) => `${what} ${n}`);

  test("sends many texts of one field as one clause", () => {
    const actions = texts("Shop#show");
    const query = buildPushdownQuery(placed(otel), { actions }, site);
    expect(JSON.stringify(query)).toContain(JSON.stringify({ terms: { name: actions } }));
    expect(measureQuery(query).clauses).toBeLessThan(20);
    const errors = texts("err").map((digest) => ({ digest, exception: "Timeout" }));
    const errorQuery = buildExceptionQuery(placed(jaeger), errors);
    expect(JSON.stringify(errorQuery)).toContain('"logs.fields.value":["Timeout"]');
    expect(measureQuery(errorQuery).clauses).toBeLessThan(20);
  });

  test("leaves surplus tags to the reader and keeps the duration bounds", () => {
    const tags = texts("tag").map((name) => ({ name, value: "v" }));
    for (const shipper of [otel, apm, dataPrepper, jaeger]) {
      const query = buildPushdownQuery(placed(shipper), { tags, minDuration: 5_000n }, site);
      expect(measureQuery(query).clauses).toBeLessThan(120);
      expect(JSON.stringify(query)).toContain('"gte":"5');
      expect(JSON.stringify(query)).toContain("tag 1");
    }
  });

  test("matches nothing by a text longer than any index can hold", () => {
    const long = "é".repeat(20_000);
    const field = "attributes.appsignal.action_name";
    const over = { name: { type: "keyword" }, [field]: { type: "keyword" } };
    const narrowed = (...actions: string[]) => buildPushdownQuery(placed(otel, over), { actions }, site);
    expect(narrowed(long)).toBe(matchNone);
    expect(narrowed(long, "GET /")).toEqual(narrowed("GET /"));
    expect(narrowed("é".repeat(16_383))).not.toBe(matchNone);
  });
});

describe("namespace query", () => {
  test("searches the default namespaces by kind", () => {
    const own = { "attributes.appsignal.namespace": { type: "keyword" } };
    const asked = (...namespaces: string[]) =>
      JSON.stringify(buildPushdownQuery(placed(otel, own), { namespaces }, site));
    expect(asked("admin")).toBe('{"terms":{"attributes.appsignal.namespace":["admin"]}}');
    expect(asked("web")).toContain('"server"');
    expect(asked("web", "background")).toBe(JSON.stringify(matchAll));
  });
});
