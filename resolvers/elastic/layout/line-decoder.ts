// A document as a log line, by its profile.
import { BackendError } from "../../../src/core/errors.ts";
import { type LogLine, type Severity, severityOf } from "../../../src/core/rows.ts";
import type { Instant } from "../../../src/core/time.ts";
import { numberPattern } from "../../../src/log-query/ast.ts";
import type { Hit, Picked } from "../document/hit-scanner.ts";
import { isObject, type Json, parseSpelled } from "../document/lossless-json.ts";
import { readBody, structuredMessage } from "./body-decoder.ts";
import { firstText, type LogProfile, type SeverityRule, textsAt } from "./log-layout.ts";

/** @throws {BackendError} where the document is no JSON object */
export function readLine(
  backend: string,
  hit: Hit,
  time: Instant,
  sourceId: string,
  profile: LogProfile,
): LogLine {
  const document =
    (profile.json === "source" ? hit.picked : undefined) ?? parseDocument(backend, hit, hit.source);
  return {
    // Unique in one index only, and a source is a pattern of many.
    id: `${hit.index}/${hit.id}`,
    time,
    source_id: sourceId,
    severity: readSeverity(document, profile.severity),
    message: readMessage(document, profile, () => parseDocument(backend, hit, hit.source)),
    hostname: firstText(document, profile.hostname),
    group: firstText(document, profile.group),
    json:
      profile.json === "source" || document instanceof Map
        ? hit.source
        : readBody(document, profile, profile.json.from),
  };
}

/** `whole` parses the document where only its text is at hand. */
function readMessage(document: Json | Picked, profile: LogProfile, whole: () => Json): string | undefined {
  const text = firstText(document, profile.message);
  if (text !== undefined) return profile.chomp ? text.replace(/\r?\n$/, "") : text;
  if (profile.json === "source" && profile.structured === undefined) return undefined;
  const structured = structuredMessage(document instanceof Map ? whole() : document, profile);
  return structured === undefined ? undefined : JSON.stringify(structured);
}

/** The first that a rule recognises, of any value that its field has. */
export function readSeverity(document: Json | Picked, rules: readonly SeverityRule[]): Severity {
  for (const rule of rules) {
    for (const text of textsAt(document, rule.field)) {
      const severity = severityBy(rule, text);
      if (severity !== "unknown") return severity;
    }
  }
  return "unknown";
}

function severityBy({ values, at_least: steps }: SeverityRule, text: string): Severity {
  if (values === undefined && steps === undefined) return severityOf(text);
  if (values !== undefined && Object.hasOwn(values, text)) return values[text] ?? "unknown";
  if (steps === undefined || !numberPattern.test(text)) return "unknown";
  return steps.findLast(({ from }) => from <= Number(text))?.severity ?? "unknown";
}

export function parseDocument(backend: string, { id, index }: Hit, text: string): Json {
  let cause: unknown;
  try {
    const document = parseSpelled(text);
    if (isObject(document)) return document;
  } catch (error) {
    cause = error;
  }
  throw new BackendError(backend, "malformed", `document ${id} of ${index} is not a JSON object`, { cause });
}
