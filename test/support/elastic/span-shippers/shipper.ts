// What the span shippers have in common. A shipper writes spans as one product stores them, with the mappings that the product
// installs, as far as the test servers have the field types. It leaves out what its layout cannot carry.
import type { Attributes, Span, SpanEvent } from "#src/core/rows.ts";

export type ShippedSpan = Omit<
  Span,
  "site_id" | "namespace" | "action" | "tags" | "peer" | "statement" | "report"
>;

export interface ShippedDocuments {
  readonly index: string;
  /** The document's JSON text. */
  readonly document: string;
}
export interface SpanShipper {
  readonly name: string;
  /** The layout that must be detected. */
  readonly layout: string;
  /** The patterns that a site's `traces.index` names, for indices that begin with `prefix`. */
  readonly pattern: (prefix: string) => string;
  /** Index names and their definitions. */
  readonly indices: (prefix: string) => Readonly<Record<string, object>>;
  readonly write: (prefix: string, spans: readonly ShippedSpan[]) => readonly ShippedDocuments[];
}

/** JSON with bigints as numbers. */
export function printJson(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map((element) => printJson(element ?? null)).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${printJson(member)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

export const settings = { number_of_shards: 2, number_of_replicas: 0 };
export const keyword = { type: "keyword" };
export const shortKeyword = (ignore_above: number) => ({ type: "keyword", ignore_above });
export const capitalise = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
export const micros = (instant: bigint): bigint => instant / 1_000n;
export const isException = ({ name }: SpanEvent): boolean => name === "exception";

/** Attributes below a prefix, with `@` for the dots of their keys. */
export function replaceDots(prefix: string, attributes: Attributes): Attributes {
  return Object.fromEntries(
    Object.entries(attributes).map(([key, value]) => [prefix + key.replaceAll(".", "@"), value]),
  );
}
