// Decodes a document into a log line by its layout. Where the layout's body is the document itself, the values that the scanner
// picked are enough and the document is not parsed.
import { readOwn } from "../../../src/core/collections.ts";
import { BackendError } from "../../../src/core/errors.ts";
import { isJsonObject, type JsonObject, parseLossless } from "../../../src/core/json/lossless-json.ts";
import type { LogLine, Severity } from "../../../src/core/rows.ts";
import { parseSeverity } from "../../../src/core/severity-words.ts";
import type { Instant } from "../../../src/core/time.ts";
import { numberPattern } from "../../../src/log-query/ast.ts";
import { findFirstText, listTexts } from "../document/dotted-names.ts";
import type { Hit, PickedValues } from "../document/hit-scanner.ts";
import { findStructuredMessage, readBody } from "./body-decoder.ts";
import type { LogLayout, SeverityRule } from "./log-layout.ts";

/** @throws {BackendError} The document is no JSON object. */
export function decodeLine(
  backend: string,
  hit: Hit,
  time: Instant,
  sourceId: string,
  layout: LogLayout,
): LogLine {
  const document = (layout.json === "source" ? hit.picked : undefined) ?? parseDocument(backend, hit);
  return {
    // An id is unique in one index only, and a source may have many indices.
    id: `${hit.index}/${hit.id}`,
    time,
    source_id: sourceId,
    severity: readSeverity(document, layout.severity),
    message: readMessage(backend, hit, document, layout),
    hostname: findFirstText(document, layout.hostname),
    group: findFirstText(document, layout.group),
    json:
      layout.json === "source" || document instanceof Map
        ? hit.source
        : readBody(document, layout, layout.json.from),
  };
}

function readMessage(
  backend: string,
  hit: Hit,
  document: JsonObject | PickedValues,
  layout: LogLayout,
): string | undefined {
  const text = findFirstText(document, layout.message);
  if (text !== undefined) return layout.chomp ? text.replace(/\r?\n$/, "") : text;
  if (layout.json === "source" && layout.structured === undefined) return undefined;
  const parsed = document instanceof Map ? parseDocument(backend, hit) : document;
  const structured = findStructuredMessage(parsed, layout);
  return structured === undefined ? undefined : JSON.stringify(structured);
}

/**
 * The severity by the first rule that recognises a value of its field; `unknown` if none does. Where none of the rules recognises
 * the application's own level, one of last resort says nothing about it.
 */
export function readSeverity(document: JsonObject | PickedValues, rules: readonly SeverityRule[]): Severity {
  let hasValue = false;
  for (const rule of rules) {
    if (hasValue && rule.last_resort === true) continue;
    for (const text of listTexts(document, rule.field)) {
      const severity = deriveSeverity(rule, text);
      if (severity !== "unknown") return severity;
      if (text !== "") hasValue = true;
    }
  }
  return "unknown";
}

function deriveSeverity({ values, at_least: steps }: SeverityRule, text: string): Severity {
  if (values === undefined && steps === undefined) return parseSeverity(text);
  const own = values && readOwn(values, text);
  if (own !== undefined) return own;
  if (steps === undefined || !numberPattern.test(text)) return "unknown";
  return steps.findLast(({ from }) => from <= Number(text))?.severity ?? "unknown";
}

/** @throws {BackendError} The document is no JSON object. */
export function parseDocument(backend: string, { id, index, source }: Hit): JsonObject {
  let cause: unknown;
  try {
    const document = parseLossless(source);
    if (isJsonObject(document)) return document;
  } catch (error) {
    cause = error;
  }
  throw new BackendError(backend, "malformed", `document ${id} of ${index} is not a JSON object`, { cause });
}
