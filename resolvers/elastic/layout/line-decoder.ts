// A document as a log line, by its profile.
import { BackendError } from "../../../src/core/errors.ts";
import { type LogLine, parseSeverity, type Severity } from "../../../src/core/rows.ts";
import type { Instant } from "../../../src/core/time.ts";
import { numberPattern } from "../../../src/log-query/ast.ts";
import type { Hit, PickedValues } from "../document/hit-scanner.ts";
import { isJsonObject, type JsonObject, parseLossless } from "../document/lossless-json.ts";
import { findStructuredMessage, readBody } from "./body-decoder.ts";
import { findFirstText, type LogLayout, listTexts, type SeverityRule } from "./log-layout.ts";

/** @throws {BackendError} where the document is no JSON object */
export function decodeLine(
  backend: string,
  hit: Hit,
  time: Instant,
  sourceId: string,
  layout: LogLayout,
): LogLine {
  const document =
    (layout.json === "source" ? hit.picked : undefined) ?? parseDocument(backend, hit, hit.source);
  return {
    // Unique in one index only, and a source is a pattern of many.
    id: `${hit.index}/${hit.id}`,
    time,
    source_id: sourceId,
    severity: readSeverity(document, layout.severity),
    message: readMessage(document, layout, () => parseDocument(backend, hit, hit.source)),
    hostname: findFirstText(document, layout.hostname),
    group: findFirstText(document, layout.group),
    json:
      layout.json === "source" || document instanceof Map
        ? hit.source
        : readBody(document, layout, layout.json.from),
  };
}

/** `whole` parses the document where only its text is at hand. */
function readMessage(
  document: JsonObject | PickedValues,
  layout: LogLayout,
  whole: () => JsonObject,
): string | undefined {
  const text = findFirstText(document, layout.message);
  if (text !== undefined) return layout.chomp ? text.replace(/\r?\n$/, "") : text;
  if (layout.json === "source" && layout.structured === undefined) return undefined;
  const structured = findStructuredMessage(document instanceof Map ? whole() : document, layout);
  return structured === undefined ? undefined : JSON.stringify(structured);
}

/** The first that a rule recognises, of any value that its field has. */
export function readSeverity(document: JsonObject | PickedValues, rules: readonly SeverityRule[]): Severity {
  for (const rule of rules) {
    for (const text of listTexts(document, rule.field)) {
      const severity = deriveSeverity(rule, text);
      if (severity !== "unknown") return severity;
    }
  }
  return "unknown";
}

function deriveSeverity({ values, at_least: steps }: SeverityRule, text: string): Severity {
  if (values === undefined && steps === undefined) return parseSeverity(text);
  if (values !== undefined && Object.hasOwn(values, text)) return values[text] ?? "unknown";
  if (steps === undefined || !numberPattern.test(text)) return "unknown";
  return steps.findLast(({ from }) => from <= Number(text))?.severity ?? "unknown";
}

export function parseDocument(backend: string, { id, index }: Hit, text: string): JsonObject {
  let cause: unknown;
  try {
    const document = parseLossless(text);
    if (isJsonObject(document)) return document;
  } catch (error) {
    cause = error;
  }
  throw new BackendError(backend, "malformed", `document ${id} of ${index} is not a JSON object`, { cause });
}
