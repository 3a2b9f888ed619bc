// Writes front-end error reports as documents; nothing else in this backend writes. A report becomes a span document and an event
// document of the `otel` layout, which the span reader assembles again. Both have fixed ids and are only created, never updated,
// so that a second delivery changes nothing.
import { z } from "zod";
import { requireFirst, zip } from "../../src/core/collections.ts";
import { BackendError, isRefusedBySource } from "../../src/core/errors.ts";
import type { Span, SpanEvent } from "../../src/core/rows.ts";
import { printInstantToMilli } from "../../src/core/time.ts";
import type { ErrorReportStore, ErrorReportTarget } from "../../src/store/error-reports.ts";
import type { PartInspection } from "../../src/store/inspection.ts";
import {
  type BulkResult,
  bulkResultSchema,
  createBulkError,
  formatBulkResult,
} from "./client/bulk-result.ts";
import type { ElasticClient } from "./client/client.ts";
import { encodePattern } from "./client/query-dsl.ts";

/** The layouts in which reports can be written; `auto` means `otel`. */
const supportedLayouts: readonly string[] = ["auto", "otel"];

export function createReportStore(backend: string, client: ElasticClient): ErrorReportStore {
  return {
    async deliver({ index, layout }, reports, signal) {
      const fault = findLayoutFault(layout);
      if (fault !== undefined) throw new BackendError(backend, "rejected", fault);
      // Each time, since it may have been deleted: most servers would create it anew with fields of guessed types.
      await ensureIndex(backend, client, index, signal);
      const documents = reports.flatMap(toDocuments);
      const results = await createDocuments(backend, client, index, documents, signal);
      return collectRefusals(backend, documents, results);
    },
  };
}

function findLayoutFault(layout: string): string | undefined {
  if (supportedLayouts.includes(layout)) return undefined;
  return `reports are written in the layout otel, not in ${layout}`;
}

// ---- Documents ----------------------------------------------------------------------------------------------

interface ReportDocument {
  readonly report: string;
  readonly id: string;
  readonly body: object;
}

function toDocuments(span: Span): readonly ReportDocument[] {
  const report = span.trace_id;
  return [
    { report, id: report, body: toSpanDocument(span) },
    ...span.events.map((event, at) => ({
      report,
      id: `${report}-${at}`,
      body: toEventDocument(span, event),
    })),
  ];
}

/** As the collector's exporter writes spans, except for the time, which is an ISO text. */
function toSpanDocument(span: Span): object {
  return {
    "@timestamp": printInstantToMilli(span.start),
    trace_id: span.trace_id,
    span_id: span.span_id,
    name: span.span_name,
    kind: "Internal",
    duration: Number(span.end - span.start),
    status: { code: "Error", message: span.status_message },
    attributes: span.span_attributes,
    resource: { attributes: span.resource_attributes },
  };
}

function toEventDocument(span: Span, event: SpanEvent): object {
  return {
    "@timestamp": printInstantToMilli(event.time),
    trace_id: span.trace_id,
    span_id: span.span_id,
    event_name: event.name,
    attributes: event.attributes,
    resource: { attributes: span.resource_attributes },
  };
}

const keyword = { type: "keyword", ignore_above: 1_024 };

/**
 * The definition of a new index. Attributes are stored but not indexed, since users choose their names: `a` beside `a.b`, or ten
 * thousand different names, would make documents that no mapping accepts. What the reader searches by is indexed.
 */
const indexDefinition = {
  mappings: {
    dynamic: false,
    properties: {
      "@timestamp": { type: "date" },
      trace_id: keyword,
      span_id: keyword,
      parent_span_id: keyword,
      name: keyword,
      kind: keyword,
      duration: { type: "long" },
      event_name: keyword,
      // Reports have no links. Without these fields, each lookup by a link would read all reports.
      links: { properties: { trace_id: keyword, span_id: keyword } },
      status: {
        properties: { code: keyword, message: { type: "keyword", index: false, doc_values: false } },
      },
      attributes: { type: "object", enabled: false },
      resource: {
        properties: {
          attributes: {
            dynamic: false,
            properties: { service: { properties: { name: keyword, version: keyword } } },
          },
        },
      },
      // The names by which the collector's own templates let services be found.
      service: { properties: { name: { type: "alias", path: "resource.attributes.service.name" } } },
    },
  },
};

// ---- Requests -----------------------------------------------------------------------------------------------

const resolveResponseSchema = z.object({
  indices: z.array(z.object({ name: z.string() })).default([]),
  aliases: z.array(z.object({ name: z.string() })).default([]),
  data_streams: z.array(z.object({ name: z.string() })).default([]),
});
type TargetKind = "index" | "alias" | "data stream";

/** Undefined if there is nothing of this name. @throws {BackendError} */
async function findTargetKind(
  backend: string,
  client: ElasticClient,
  index: string,
  signal: AbortSignal,
): Promise<TargetKind | undefined> {
  // With the star, the server answers an empty list instead of an error if there is nothing.
  const path = `/_resolve/index/${encodePattern(index)}*`;
  const answer = await client.sendJson({ method: "GET", path }, signal);
  const { data, error: cause } = resolveResponseSchema.safeParse(answer);
  if (data === undefined)
    throw new BackendError(backend, "malformed", "the list of indices cannot be read", { cause });
  const { indices, aliases, data_streams } = data;
  const isListed = (list: readonly { readonly name: string }[]) => list.some(({ name }) => name === index);
  if (isListed(data_streams)) return "data stream";
  if (isListed(aliases)) return "alias";
  return isListed(indices) ? "index" : undefined;
}

/** Creates the index if it does not exist; otherwise the server would guess the types of its fields. @throws {BackendError} */
async function ensureIndex(
  backend: string,
  client: ElasticClient,
  index: string,
  signal: AbortSignal,
): Promise<TargetKind> {
  const kind = await findTargetKind(backend, client, index, signal);
  if (kind !== undefined) return kind;
  const path = `/${encodePattern(index)}`;
  try {
    await client.send({ method: "PUT", path, body: JSON.stringify(indexDefinition) }, signal);
    return "index";
  } catch (error) {
    // Another instance may have been faster, or a template may require a data stream of this name.
    const found = await findTargetKind(backend, client, index, signal);
    if (found !== undefined) return found;
    try {
      await client.send({ method: "PUT", path: `/_data_stream${path}` }, signal);
    } catch {
      throw error;
    }
    return "data stream";
  }
}

const bulkResponseSchema = z.object({ items: z.array(z.object({ create: bulkResultSchema })) });

async function createDocuments(
  backend: string,
  client: ElasticClient,
  index: string,
  documents: readonly ReportDocument[],
  signal: AbortSignal,
): Promise<readonly BulkResult[]> {
  const lines = documents.flatMap(({ id, body }) => [
    JSON.stringify({ create: { _id: id } }),
    JSON.stringify(body),
  ]);
  const path = `/${encodePattern(index)}/_bulk`;
  const query = { filter_path: "items.create.status,items.create.error.type,items.create.error.reason" };
  const answer = await client.sendJson(
    { method: "POST", path, query, body: `${lines.join("\n")}\n` },
    signal,
  );
  const parsed = bulkResponseSchema.safeParse(answer);
  if (!parsed.success || parsed.data.items.length !== documents.length) {
    throw new BackendError(backend, "malformed", `${path}: not one result for each document`);
  }
  return parsed.data.items.map((item) => item.create);
}

/** Errors of a document that does not fit the mapping, by the name that versions give them. */
const documentFaults: ReadonlySet<string | undefined> = new Set([
  "document_parsing_exception",
  "mapper_parsing_exception",
]);
/** Errors with status 400 of an index that takes no document at all. */
const indexFaults: ReadonlySet<string | undefined> = new Set([
  "illegal_argument_exception",
  "index_closed_exception",
]);

/** Reasons by report, for each report with a permanently refused document. @throws {BackendError} A document may be accepted later. */
function collectRefusals(
  backend: string,
  documents: readonly ReportDocument[],
  results: readonly BulkResult[],
): ReadonlyMap<string, string> {
  const refusals = new Map<string, string>();
  for (const [{ report }, result] of zip(documents, results)) {
    const { status, error } = result;
    // 409: the document exists already, from a delivery whose confirmation was lost.
    if (status < 300 || status === 409) continue;
    // Other errors of status 400 may be those of the index, which somebody may mend: it is closed, or its alias has no index
    // to write to, or its pipeline is missing.
    if (status !== 400 || !documentFaults.has(error?.type))
      throw createBulkError(backend, "a report was not written", result);
    if (!refusals.has(report)) refusals.set(report, formatBulkResult(result));
  }
  return refusals;
}

// ---- Inspection ---------------------------------------------------------------------------------------------

/**
 * Checks that reports can be written, by sending a body that is a document in no mapping. A server checks permissions before it
 * parses the document, so the response shows whether the user may write.
 */
export async function inspectReports(
  backend: string,
  { index, layout }: ErrorReportTarget,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<PartInspection> {
  const fault = findLayoutFault(layout);
  if (fault !== undefined) return createFailedInspection(fault);
  try {
    return await proveWriting(backend, index, client, signal);
  } catch (error) {
    if (!isRefusedBySource(error)) throw error;
    return createFailedInspection(`reports cannot be written to ${index}: ${error.message}`);
  }
}

function createFailedInspection(problem: string): PartInspection {
  return { found: [], limitations: [], problems: [problem] };
}

async function proveWriting(
  backend: string,
  index: string,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<PartInspection> {
  const limitations: string[] = [];
  const kind = await ensureIndex(backend, client, index, signal);
  if (kind !== "index") {
    limitations.push(
      `${index} is ${kind === "alias" ? "an" : "a"} ${kind}: a report whose confirmation is lost just before a rollover is stored twice`,
    );
  }
  const misfit = { report: "", id: "readout-check", body: [] };
  const result = requireFirst(await createDocuments(backend, client, index, [misfit], signal));
  const problems =
    result.status === 400 && !indexFaults.has(result.error?.type)
      ? []
      : [`reports cannot be written to ${index}: ${formatBulkResult(result)}`];
  return { found: [`${kind} ${index}, writable`], limitations, problems };
}
