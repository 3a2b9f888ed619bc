// Front-end error reports as documents: the one place where this backend writes. A report becomes what the `otel` layout
// has for a span with an exception event, two documents that its reader puts together again. Both have fixed ids and are
// only ever created, so that a second delivery finds them there and changes nothing.
import { z } from "zod";
import { BackendError } from "../../src/core/errors.ts";
import type { Attributes, Span, SpanEvent } from "../../src/core/rows.ts";
import { printMillis, toMillis } from "../../src/core/time.ts";
import type { PartReport, ReportStore, ReportTarget } from "../../src/store/store.ts";
import type { Door } from "./client/client.ts";
import { encodePattern } from "./client/query-dsl.ts";

/** The layouts that reports can be written in; `auto` is the first. */
const layouts: readonly string[] = ["auto", "otel"];

export function createReportStore(backend: string, door: Door): ReportStore {
  /** Indices that are known to be there. */
  const prepared = new Set<string>();

  return {
    async deliver({ index, profile }, reports, signal) {
      checkLayout(backend, profile);
      if (!prepared.has(index)) await makeIndex(door, index, signal);
      prepared.add(index);
      try {
        const documents = reports.flatMap(documentsOf);
        const results = await create(backend, door, index, documents, signal);
        return refusalsOf(backend, documents, results);
      } catch (error) {
        // It may have been deleted since.
        prepared.delete(index);
        throw error;
      }
    },
  };
}

function checkLayout(backend: string, profile: string): void {
  if (layouts.includes(profile)) return;
  throw new BackendError(
    backend,
    "rejected",
    `reports cannot be written in the layout ${profile}, only in otel`,
  );
}

// ---- Documents ----------------------------------------------------------------------------------------------

interface Document {
  readonly report: string;
  readonly id: string;
  readonly body: object;
}

function documentsOf(span: Span): readonly Document[] {
  const report = span.trace_id;
  return [
    { report, id: report, body: spanDocument(span) },
    ...span.events.map((event, at) => ({ report, id: `${report}-${at}`, body: eventDocument(span, event) })),
  ];
}

/** As the collector's exporter writes them, but for the time, which is spelled in full. */
function spanDocument(span: Span): object {
  return {
    "@timestamp": printMillis(toMillis(span.start)),
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

function eventDocument(span: Span, event: SpanEvent): object {
  const attributes: Attributes = event.attributes;
  return {
    "@timestamp": printMillis(toMillis(event.time)),
    trace_id: span.trace_id,
    span_id: span.span_id,
    event_name: event.name,
    attributes,
    resource: { attributes: span.resource_attributes },
  };
}

/**
 * Of an index that is made here. Attributes are kept and not indexed, because users name them: `a` beside `a.b`, or ten
 * thousand different names, would make documents that no mapping takes. What a reader narrows by is indexed.
 */
const keyword = { type: "keyword", ignore_above: 1_024 };
const definition = {
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
      // Reports have none; without them here every look-up by a link would have to read all reports to know.
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
      // The names under which the collector's own templates let them be found.
      service: { properties: { name: { type: "alias", path: "resource.attributes.service.name" } } },
    },
  },
};

// ---- Requests -----------------------------------------------------------------------------------------------

const resolved = z.object({
  indices: z.array(z.object({ name: z.string() })).default([]),
  aliases: z.array(z.object({ name: z.string() })).default([]),
  data_streams: z.array(z.object({ name: z.string() })).default([]),
});
type Place = "index" | "alias" | "data stream";

async function findPlace(door: Door, index: string, signal: AbortSignal): Promise<Place | undefined> {
  // With the star an answer without matches is not an error.
  const path = `/_resolve/index/${encodePattern(index)}*`;
  const { indices, aliases, data_streams } = resolved.parse(
    await door.sendJson({ method: "GET", path }, signal),
  );
  const holds = (list: readonly { readonly name: string }[]) => list.some(({ name }) => name === index);
  return holds(data_streams)
    ? "data stream"
    : holds(aliases)
      ? "alias"
      : holds(indices)
        ? "index"
        : undefined;
}

/** Makes the index where there is none: left to itself the server would guess what its fields are. */
async function makeIndex(door: Door, index: string, signal: AbortSignal): Promise<Place> {
  const place = await findPlace(door, index, signal);
  if (place !== undefined) return place;
  const path = `/${encodePattern(index)}`;
  try {
    await door.send({ method: "PUT", path, body: JSON.stringify(definition) }, signal);
    return "index";
  } catch (error) {
    // Another instance may have been faster, or a template may want a data stream under this name.
    const found = await findPlace(door, index, signal);
    if (found !== undefined) return found;
    try {
      await door.send({ method: "PUT", path: `/_data_stream${path}` }, signal);
    } catch {
      throw error;
    }
    return "data stream";
  }
}

const bulkAnswer = z.object({
  items: z.array(
    z.object({
      create: z.object({
        status: z.int(),
        error: z.object({ type: z.string(), reason: z.string().nullish() }).optional(),
      }),
    }),
  ),
});
type Result = z.infer<typeof bulkAnswer>["items"][number]["create"];

async function create(
  backend: string,
  door: Door,
  index: string,
  documents: readonly Document[],
  signal: AbortSignal,
): Promise<readonly Result[]> {
  const lines = documents.flatMap(({ id, body }) => [
    JSON.stringify({ create: { _id: id } }),
    JSON.stringify(body),
  ]);
  const path = `/${encodePattern(index)}/_bulk`;
  const query = { filter_path: "items.create.status,items.create.error.type,items.create.error.reason" };
  const answer = await door.sendJson({ method: "POST", path, query, body: `${lines.join("\n")}\n` }, signal);
  const parsed = bulkAnswer.safeParse(answer);
  if (!parsed.success || parsed.data.items.length !== documents.length) {
    throw new BackendError(backend, "malformed", `${path}: not one result for each document`);
  }
  return parsed.data.items.map((item) => item.create);
}

/** Reports of which a document was refused for good. @throws {BackendError} when one may be taken another time */
function refusalsOf(
  backend: string,
  documents: readonly Document[],
  results: readonly Result[],
): ReadonlyMap<string, string> {
  const refusals = new Map<string, string>();
  for (const [at, { status, error }] of results.entries()) {
    // 409: it is there already, from a delivery whose confirmation was lost.
    if (status < 300 || status === 409) continue;
    const told = `status ${status}: ${error?.type}: ${error?.reason}`;
    // 400 is the document's own fault, but where the index was closed and will be opened again.
    if (status !== 400 || error?.type === "index_closed_exception") {
      const failure =
        status === 429 || status === 503 ? "overloaded" : status === 403 ? "denied" : "rejected";
      throw new BackendError(backend, failure, `a report was not written: ${told}`, { status });
    }
    const report = documents[at]?.report;
    if (report !== undefined && !refusals.has(report)) refusals.set(report, told);
  }
  return refusals;
}

// ---- Inspection ---------------------------------------------------------------------------------------------

/**
 * Proves that reports can be written, by a document that is none, whatever the mapping: who may not write is told so before
 * the server looks at the document, and who may is told that it does not fit.
 */
export async function inspectReports(
  backend: string,
  { index, profile }: ReportTarget,
  door: Door,
  signal: AbortSignal,
): Promise<PartReport> {
  if (!layouts.includes(profile)) {
    return {
      found: [],
      limitations: [],
      problems: [`reports are written in the layout otel, not in ${profile}`],
    };
  }
  try {
    return await proveWriting(backend, index, door, signal);
  } catch (error) {
    if (!(error instanceof BackendError) || !["denied", "rejected"].includes(error.failure)) throw error;
    return {
      found: [],
      limitations: [],
      problems: [`reports cannot be written to ${index}: ${error.message}`],
    };
  }
}

async function proveWriting(
  backend: string,
  index: string,
  door: Door,
  signal: AbortSignal,
): Promise<PartReport> {
  const limitations: string[] = [];
  const place = await makeIndex(door, index, signal);
  if (place !== "index") {
    limitations.push(
      `${index} is ${place === "alias" ? "an" : "a"} ${place}: a report whose confirmation is lost just before a rollover is there twice after it`,
    );
  }
  const misfit = { report: "", id: "readout-check", body: [] };
  const [result] = await create(backend, door, index, [misfit], signal);
  const told = `status ${result?.status}: ${result?.error?.type}: ${result?.error?.reason}`;
  const problems = result?.status === 400 ? [] : [`reports cannot be written to ${index}: ${told}`];
  return { found: [`${place} ${index}, writable`], limitations, problems };
}
