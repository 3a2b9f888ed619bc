// Exceptions of spans: events named `exception`, and the digest that identifies their error.
import type { AttributeValue, Span } from "../../core/rows.ts";
import type { Instant } from "../../core/time.ts";
import { encodeErrorDigest } from "./digest.ts";
import { type ActionNames, incidentDigestAttribute } from "./requests.ts";

export interface SpanException {
  readonly time: Instant;
  readonly name: string;
  readonly digest: string;
  readonly message: string | undefined;
  readonly stacktrace: string | undefined;
}

/** The name of an exception without a type. */
export const unknownException = "unknown";

export function hasException({ events }: Pick<Span, "events">): boolean {
  return events.some(({ name }) => name === "exception");
}

/** The span's exceptions in their order. `names` are those of the entry above the span, or its own without an entry. */
export function listExceptions(span: Span, names: ActionNames): readonly SpanException[] {
  return span.events.flatMap(({ time, name: event, attributes }) => {
    if (event !== "exception") return [];
    const type = attributes["exception.type"];
    const name = typeof type === "string" && type !== "" ? type : unknownException;
    const carried = attributes[incidentDigestAttribute];
    const hasDigest = typeof carried === "string" && carried !== "";
    const digest = hasDigest ? carried : encodeErrorDigest(name, names);
    const message = readText(attributes["exception.message"]);
    return [{ time, name, digest, message, stacktrace: readText(attributes["exception.stacktrace"]) }];
  });
}

function readText(value: AttributeValue | undefined): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
