// Spans as a layout places them in one index, and which documents the queries of their times match.
import { describeProduct } from "#resolvers/elastic/client/product.ts";
import { matchAll, matchNone, type Query } from "#resolvers/elastic/client/query-dsl.ts";
import { type PlacedForm, placeForms } from "#resolvers/elastic/layout/form-placement.ts";
import { type SpanForm, spanLayouts } from "#resolvers/elastic/layout/span-layout.ts";
import { parseInstant } from "#src/core/time.ts";
import { readIndexMetadata } from "./index-metadata.ts";
import type { SpanShipper } from "./span-shippers/shipper.ts";

/** The spans of the shipper's first index, with some of its properties replaced. */
export function placed(
  shipper: SpanShipper,
  over: object = {},
  entry?: SpanForm["entry"],
): PlacedForm<SpanForm> {
  const [definition] = Object.values(shipper.indices("p"));
  const { mappings } = definition as { mappings: { properties: object } };
  const properties = { ...mappings.properties, ...over };
  const knowledge = readIndexMetadata({
    index: {
      mappings: { ...mappings, properties },
      settings: { index: { version: { created: "8190899" } } },
    },
  });
  const product = describeProduct("Elasticsearch", "8.19.8");
  const { spans } = placeForms(knowledge, [...spanLayouts.values()], product);
  const first = entry === undefined ? spans[0] : spans.find(({ form }) => form.entry === entry);
  if (first === undefined) throw new Error(`${shipper.name} is not recognised`);
  return first;
}

export type Fields = Readonly<Record<string, bigint>>;

/** Evaluates a range as a server does: dates by their milliseconds. A float has the bounds of floats. */
export function hits(query: Query, fields: Fields, floats: readonly string[] = []): boolean {
  if (query === matchAll) return true;
  if (query === matchNone) return false;
  const { bool, range, exists, term } = query as {
    term?: { _ignored?: string };
    bool?: Record<string, Query[]>;
    exists?: { field: string };
    range?: Record<string, Record<string, unknown>>;
  };
  if (bool !== undefined) {
    const { filter = [], should = [], must_not = [] } = bool;
    return (
      filter.every((inner) => hits(inner, fields, floats)) &&
      (should.length === 0 || should.some((inner) => hits(inner, fields, floats))) &&
      !must_not.some((inner) => hits(inner, fields, floats))
    );
  }
  if (exists !== undefined) return fields[exists.field] !== undefined;
  // No value is malformed.
  if (term?._ignored !== undefined) return false;
  if (range === undefined) throw new Error(`not a range: ${JSON.stringify(query)}`);
  const [[name, bounds] = ["", {}]] = Object.entries(range);
  const toIndexed = (number: bigint) =>
    floats.includes(name) ? BigInt(Math.fround(Number(number))) : number;
  const held = fields[name];
  if (held === undefined) return false;
  const value = toIndexed(held);
  const bound = (text: unknown): bigint => parseInstant(String(text)) ?? toIndexed(BigInt(String(text)));
  return (
    (bounds.gte === undefined || value >= bound(bounds.gte)) &&
    (bounds.lte === undefined || value <= bound(bounds.lte)) &&
    (bounds.lt === undefined || value < bound(bounds.lt))
  );
}
