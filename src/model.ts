// The rows that stores answer, spelled as on the wire, so that nothing is renamed on its way out. Absent is
// `undefined` here; only `operations/` writes `""` and `{}` for it.
import type { Instant } from "./time.ts";

/** Spec, "Log line"; `unknown` is what no rule recognises. */
export const severities = [
  "trace",
  "debug",
  "info",
  "notice",
  "warn",
  "error",
  "critical",
  "alert",
  "fatal",
  "unknown",
] as const;
export type Severity = (typeof severities)[number];

/**
 * A log line as a store answers it.
 *
 * - `time` is the instant that the source sorts by; the answer shows its milliseconds.
 * - `id` is unique within its source.
 * - A line field that the source does not have is absent: it is answered as `""`, but no positive comparison
 *   holds for it. `severity` is never absent.
 * - `json` is the text of the structured body with every number spelled as in the source; `{}` where there is none.
 */
export interface LogLine {
  readonly id: string;
  readonly time: Instant;
  readonly source_id: string;
  readonly severity: Severity;
  readonly message?: string | undefined;
  readonly hostname?: string | undefined;
  readonly group?: string | undefined;
  readonly json: string;
}

const spellings: Readonly<Record<string, Severity>> = {
  ...Object.fromEntries(severities.map((name) => [name, name])),
  information: "info",
  informational: "info",
  warning: "warn",
  err: "error",
  crit: "critical",
  emerg: "fatal",
  emergency: "fatal",
  panic: "fatal",
};

/** The severity that a source's text means, in any case; anything else is `unknown`. */
export function severityOf(text: string | undefined): Severity {
  const word = text?.toLowerCase();
  return (word !== undefined && Object.hasOwn(spellings, word) && spellings[word]) || "unknown";
}

/** Every source spelling, in lower case, that `severityOf` reads as this severity. */
export function spellingsOf(severity: Severity): readonly string[] {
  return Object.keys(spellings).filter((word) => spellings[word] === severity);
}
