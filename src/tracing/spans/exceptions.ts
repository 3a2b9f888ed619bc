// Exceptions of spans: events named `exception`, and the digest that tells which of them are one error.
import type { Span } from "../../core/rows.ts";
import type { Instant } from "../../core/time.ts";
import { errorDigest } from "./digest.ts";
import { incidentDigest, type Names } from "./requests.ts";

export interface Exception {
  readonly time: Instant;
  readonly name: string;
  readonly digest: string;
}

/** The name of an exception without a type. */
export const unknownException = "unknown";

export function hasException({ events }: Pick<Span, "events">): boolean {
  return events.some(({ name }) => name === "exception");
}

/** The span's exceptions in their order. `names` are those of the entry above it, or its own where it has none. */
export function exceptionsOf(span: Span, names: Names): readonly Exception[] {
  return span.events.flatMap(({ time, name: event, attributes }) => {
    if (event !== "exception") return [];
    const type = attributes["exception.type"];
    const name = typeof type === "string" && type !== "" ? type : unknownException;
    const given = attributes[incidentDigest];
    const digest = typeof given === "string" && given !== "" ? given : errorDigest(name, names);
    return [{ time, name, digest }];
  });
}
