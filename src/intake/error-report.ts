// Front-end error reports, from the body that a browser posts to the span that the tracing routes answer. Browsers are
// forgiven what the specification's types do not allow: only what a report cannot be without has to be right.
import { JsonSyntaxError, parseJsonInTurns } from "../core/json/json-in-turns.ts";
import { formatScalar, isJsonObject, parseNumberLossless } from "../core/json/lossless-json.ts";
import { type Attributes, type AttributeValue, errorReportAttribute, type Span } from "../core/rows.ts";
import { fromMillis, type Instant, lastMilli } from "../core/time.ts";

/** The account in whose turns of the event loop reports are read: they come without a user. */
export const reportAccount = "front-end reports";

/** Spec, "Front-end error report", with every optional part in its empty form. */
interface ErrorReport {
  readonly time: Instant;
  readonly namespace: string;
  readonly error: {
    readonly name: string;
    readonly message?: string | undefined;
    readonly backtrace: readonly string[];
  };
  readonly action?: string | undefined;
  readonly revision?: string | undefined;
  readonly language?: string | undefined;
  readonly tags: Texts;
  readonly params: Texts;
  readonly environment: Texts;
  readonly breadcrumbs: readonly Breadcrumb[];
}
type Texts = Readonly<Record<string, string>>;
interface Breadcrumb {
  readonly timestamp?: string | undefined;
  readonly category?: string | undefined;
  readonly action?: string | undefined;
  readonly message?: string | undefined;
  readonly metadata: Texts;
}

type Json = Readonly<Record<string, unknown>>;

/**
 * The report that a body holds; undefined where it is no JSON object, or `timestamp`, `namespace` or the error's name
 * is missing or of another type. Other values are taken as text, and what cannot be placed is left out. It is read in turns
 * of the event loop.
 */
export async function readReport(body: string): Promise<ErrorReport | undefined> {
  const report = await parseObject(body);
  const error = toObject(report?.error);
  const time = readTime(report?.timestamp);
  if (report === undefined || error === undefined || time === undefined) return undefined;
  if (typeof report.namespace !== "string" || typeof error.name !== "string") return undefined;
  return {
    time,
    namespace: report.namespace,
    error: {
      name: error.name,
      message: toText(error.message),
      backtrace: toLines(error.backtrace),
    },
    action: toText(report.action),
    revision: toText(report.revision),
    language: toText(report.language),
    tags: toTexts(report.tags),
    params: toTexts(report.params),
    environment: toTexts(report.environment),
    breadcrumbs: Array.isArray(report.breadcrumbs) ? report.breadcrumbs.flatMap(readBreadcrumb) : [],
  };
}

function readBreadcrumb(value: unknown): readonly Breadcrumb[] {
  const crumb = toObject(value);
  if (crumb === undefined) return [];
  const { timestamp, category, action, message, metadata } = crumb;
  return [
    {
      timestamp: toText(timestamp),
      category: toText(category),
      action: toText(action),
      message: toText(message),
      metadata: toTexts(metadata),
    },
  ];
}

/** From here on a number counts milliseconds: as seconds it would be the year 5138, as milliseconds it is 1973. */
const minMillis = 100_000_000_000;

function readTime(timestamp: unknown): Instant | undefined {
  if (typeof timestamp === "string") return undefined;
  const time = Number(formatScalar(timestamp));
  if (!Number.isInteger(time) || time < 0) return undefined;
  const millis = time < minMillis ? time * 1_000 : time;
  return millis <= lastMilli ? fromMillis(millis) : undefined;
}

/** Numbers keep their spelling. A reviver of JSON.parse would take a tenth of a second for a body of short numbers. */
async function parseObject(body: string): Promise<Json | undefined> {
  if (!/^[ \t\n\r]*\{/.test(body)) return undefined;
  try {
    return toObject(await parseJsonInTurns(body, parseNumberLossless));
  } catch (error) {
    if (error instanceof JsonSyntaxError) return undefined;
    throw error;
  }
}

function toObject(value: unknown): Json | undefined {
  return isJsonObject(value) ? value : undefined;
}

/** `null` and what is not there have no text; objects and lists are shown as JSON, unless nested too deep to print. */
function toText(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value);
  } catch {
    // It recurses, and what `parseJsonInTurns` has read may be deeper than the stack.
    return undefined;
  }
}

/** One that is a text is what browsers call a stack. */
function toLines(backtrace: unknown): readonly string[] {
  if (Array.isArray(backtrace)) return backtrace.map((line) => toText(line) ?? "");
  const text = toText(backtrace) ?? "";
  return text === "" ? [] : text.split("\n");
}

function toTexts(value: unknown): Texts {
  const entries = Object.entries(toObject(value) ?? {}).flatMap(([key, inner]) => {
    const text = toText(inner);
    return text === undefined ? [] : [[key, text] as const];
  });
  return Object.fromEntries(entries);
}

// ---- As a span ----------------------------------------------------------------------------------------------

/**
 * Contract, "Front-end error intake": one span of no length with one exception event. `id` has 32 lower-case hex
 * digits and is its trace id. A tag's attribute has the prefix that a site without settings of its own looks for.
 */
export function buildReportSpan(site: string, id: string, report: ErrorReport): Span {
  const { time, error, revision } = report;
  const namespace = report.namespace === "" ? "frontend" : report.namespace;
  const action = [report.action, error.name].find((name) => name !== undefined && name !== "") ?? "unknown";
  return {
    site_id: site,
    trace_id: id,
    span_id: id.slice(16),
    start: time,
    end: time,
    service_name: site,
    span_name: action,
    span_kind: "internal",
    revision: revision === "" ? undefined : revision,
    status_code: "ERROR",
    status_message: error.message === "" ? undefined : error.message,
    resource_attributes: omitEmpty({ "service.name": site, "service.version": revision }),
    span_attributes: {
      [errorReportAttribute]: true,
      ...omitEmpty({
        "appsignal.namespace": namespace,
        "appsignal.action_name": action,
        "appsignal.language": report.language,
        "appsignal.function.parameters": printTexts(report.params),
        "appsignal.environment": printTexts(report.environment),
        "appsignal.breadcrumbs":
          report.breadcrumbs.length === 0 ? undefined : JSON.stringify(report.breadcrumbs),
      }),
      ...Object.fromEntries(Object.entries(report.tags).map(([key, tag]) => [`appsignal.tag.${key}`, tag])),
    },
    events: [
      {
        time,
        name: "exception",
        attributes: omitEmpty({
          "exception.type": error.name,
          "exception.message": error.message,
          "exception.stacktrace": error.backtrace.join("\n"),
        }),
      },
    ],
    links: [],
    entry: true,
    namespace,
    action,
    tags: report.tags,
    count: 1,
    report: true,
  };
}

function printTexts(texts: Texts): string | undefined {
  return Object.keys(texts).length === 0 ? undefined : JSON.stringify(texts);
}

/** Without what is absent or empty: no layout tells the two apart. */
function omitEmpty(attributes: Readonly<Record<string, AttributeValue | undefined>>): Attributes {
  return Object.fromEntries(
    Object.entries(attributes).flatMap(([key, value]) =>
      value === undefined || value === "" ? [] : [[key, value] as const],
    ),
  );
}
