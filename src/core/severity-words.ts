// The words that loggers and shippers write for a severity. Only words on whose meaning their writers agree are here; any other
// is `unknown`. A word has ASCII letters and digits alone, and no `k`: another character (the Kelvin sign) becomes one in lower
// case, and no index knows that.
import { type Severity, severities } from "./rows.ts";

/** The word with each of these numbers behind it. */
const listNumbered = (word: string, from: number, to: number): readonly string[] =>
  Array.from({ length: to - from + 1 }, (_, at) => `${word}${from + at}`);

/**
 * In lower case, by severity. Single letters are those of klog, logcat, MongoDB and Ruby's logger. Numbers are those of
 * OpenTelemetry's short names (`WARN2`), of Apache (`trace8`), PostgreSQL (`DEBUG5`) and MongoDB (`D5`).
 */
const words: Readonly<Record<Severity, readonly string[]>> = {
  // logcat's V is below its D, whereas most loggers with the word `verbose` (winston, Redis, Windows) have it above debug or
  // in its place. `silly` is winston's, `finest` java.util.logging's.
  trace: ["trace", ...listNumbered("trace", 1, 8), "trac", "trce", "trc", "t", "v", "finest", "silly"],
  // `fine`, `finer` and `config` are java.util.logging's.
  debug: [
    "debug",
    ...listNumbered("debug", 1, 5),
    ...listNumbered("d", 1, 5),
    "debugging",
    "debu",
    "dbug",
    "dbg",
    "d",
    "verbose",
    "vrb",
    "fine",
    "finer",
    "config",
  ],
  // `log` is PostgreSQL's, `system` MySQL's, `http` winston's, `success` loguru's.
  info: [
    "info",
    ...listNumbered("info", 2, 4),
    "information",
    "informational",
    "inf",
    "i",
    "log",
    "system",
    "http",
    "success",
  ],
  // `notification` is Cisco's, `note` MySQL's.
  notice: ["notice", "notification", "notifications", "noti", "note", "n"],
  // Elasticsearch has `deprecation` next to its warnings.
  warn: ["warn", ...listNumbered("warn", 2, 4), "warning", "warnings", "wrn", "w", "deprecation"],
  // `severe` is java.util.logging's, `fail` that of .NET's console.
  error: ["error", ...listNumbered("error", 2, 4), "errors", "erro", "err", "e", "severe", "fail"],
  // `dpanic` is zap's, `fault` Apple's.
  critical: ["critical", "crit", "c", "dpanic", "fault"],
  // Not the letter A: it is an assertion of logcat, and any severity of Ruby.
  alert: ["alert", "alerts"],
  fatal: [
    "fatal",
    ...listNumbered("fatal", 2, 4),
    "fata",
    "ftl",
    "f",
    "emergency",
    "emergencies",
    "emerg",
    "panic",
    "pani",
    "pnc",
  ],
  unknown: ["unknown"],
};

const severityByWord: ReadonlyMap<string, Severity> = new Map(
  severities.flatMap((severity) => words[severity].map((word) => [word, severity] as const)),
);

/** Parses the severity of a source in upper or lower case; any other text is `unknown`. */
export function parseSeverity(text: string | undefined): Severity {
  return (text === undefined ? undefined : severityByWord.get(text.toLowerCase())) ?? "unknown";
}

/** Lists the texts, in lower case, that `parseSeverity` reads as this severity; its name is the first. */
export function listSeverityWords(severity: Severity): readonly string[] {
  return words[severity];
}
