// What clients are told of an operation that goes (docs/reference/versions.md).
import { formatHttpDate } from "../../core/time.ts";

export interface Deprecation {
  /** Since when it is on its way out: a day, `2027-01-31`. */
  readonly since: string;
  /** The day from which it may be missing, at least six months later. */
  readonly sunset: string;
  /** What takes its place, in a sentence. */
  readonly instead: string;
}

/** `Deprecation` (RFC 9745: seconds since 1970, as a structured date) and `Sunset` (RFC 8594: a date of HTTP). */
export function buildDeprecationHeaders({ since, sunset }: Deprecation): Readonly<Record<string, string>> {
  return { Deprecation: `@${Date.parse(since) / 1_000}`, Sunset: formatHttpDate(sunset) };
}
