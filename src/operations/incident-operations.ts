// What the fields of existing GraphQL clients ask for beside the routes: incidents, samples and markers of one site. They run
// as operations do, with the same sites, scope, deadline and limits.
import type { NonEmpty } from "../core/collections.ts";
import { compare, type TraceSummary } from "../core/rows.ts";
import {
  fromMillis,
  hour,
  type Instant,
  parseInstant,
  printInstant,
  type TimeRange,
  toInclusiveEnd,
} from "../core/time.ts";
import type { Context, PreparedOperation } from "./runtime/operation.ts";
import { createInvalidRequest } from "./runtime/request-body.ts";
import {
  countErrorRows,
  countErrors,
  type ErrorFigures,
  type Incident,
  type IncidentPage,
  type IncidentQuery,
  listIncidents,
  listSamples,
  listSamplesByDigest,
  type SampleQuery,
} from "./traces/incidents.ts";
import { type DeployMarker, listDeployMarkers } from "./traces/markers.ts";
import { createRequestBudget, resolveRange } from "./traces/read-traces.ts";

export {
  deriveIncidentDigest,
  describeNewestRow,
  type ErrorFigures,
  type Incident,
  type IncidentPage,
} from "./traces/incidents.ts";
export type { DeployMarker } from "./traces/markers.ts";

/** A range as existing clients give it: bounds, or how far back; the site's retention where there is neither. */
export interface RequestedRange {
  readonly start?: string | null | undefined;
  readonly end?: string | null | undefined;
  /** `R24H` and the like. */
  readonly timeframe?: string | null | undefined;
}

const timeframeHours: Readonly<Record<string, number>> = {
  R1H: 1,
  R4H: 4,
  R8H: 8,
  R12H: 12,
  R24H: 24,
  R48H: 48,
  R7D: 168,
  R30D: 720,
};

interface Bounds {
  readonly start?: Instant;
  readonly end?: Instant;
}

/** The bounds that are named. @throws {Unprocessable} `invalid_request` */
function readBounds(asked: RequestedRange): Bounds {
  const start = readTime("start", asked.start);
  const end = readTime("end", asked.end);
  if (start !== undefined && end !== undefined && start > toInclusiveEnd(end))
    throw createInvalidRequest([{ path: "start", message: "is later than end" }]);
  return { ...(start === undefined ? {} : { start }), ...(end === undefined ? {} : { end }) };
}

/** @throws {Unprocessable} `invalid_request` */
function resolveBounds(asked: RequestedRange, now: Instant): Bounds {
  const hours = timeframeHours[asked.timeframe ?? ""];
  const bounds = readBounds(asked);
  if (bounds.start !== undefined || hours === undefined) return bounds;
  return { ...bounds, start: ((bounds.end ?? now) - fromMillis(hours * hour)) as Instant };
}

export const expectedTime = "expected an ISO 8601 time with a zone, such as 2026-01-31T12:00:00.000Z";

function readTime(path: string, text: string | null | undefined): Instant | undefined {
  if (text === null || text === undefined) return undefined;
  const instant = parseInstant(text);
  if (instant !== undefined) return instant;
  throw createInvalidRequest([{ path, message: expectedTime }]);
}

function isResolved(asked: RequestedRange | TimeRange): asked is TimeRange {
  return "from" in asked;
}

function resolveSiteRange(site: string, asked: RequestedRange | TimeRange, context: Context): TimeRange {
  if (isResolved(asked)) return asked;
  const now = context.now();
  const found = context.sites.get(site);
  if (found === undefined) return { from: now, to: now };
  const { start, end } = resolveBounds(asked, now);
  return resolveRange(found, now, start, end);
}

function hasTraces(site: string, { sites }: Context): boolean {
  const { traces, reports } = sites.get(site) ?? {};
  return traces !== undefined || reports !== undefined;
}

/** What is wrong with the range is told whatever the site has. @throws {Unprocessable} `invalid_request` */
function prepareRead<Answer>(
  site: string,
  asked: RequestedRange | TimeRange,
  run: (context: Context) => Promise<Answer>,
): PreparedOperation<Promise<Answer>> {
  if (!isResolved(asked)) readBounds(asked);
  return { name: "tracing", scopes: ["tracing"], sites: () => [site], run };
}

export type IncidentSelection = Omit<IncidentQuery, "site" | "range">;

/** A page of incidents; empty for a site without traces. What is read of a page later takes the page's range. */
export function prepareIncidents(
  site: string,
  asked: RequestedRange | TimeRange,
  selection: IncidentSelection,
) {
  return prepareRead(site, asked, async (context): Promise<IncidentPage> => {
    const range = resolveSiteRange(site, asked, context);
    if (!hasTraces(site, context)) return { range, incidents: [], total: 0 };
    return await listIncidents({ ...selection, site, range }, context);
  });
}

/** The figures of errors of a page, for each digest in its order; undefined where the index shows none of its rows any more. */
export function prepareErrorFigures(
  site: string,
  range: TimeRange,
  selection: Pick<IncidentSelection, "namespaces" | "action" | "revision">,
  digests: NonEmpty<string>,
) {
  return prepareRead(site, range, async (context): Promise<readonly (ErrorFigures | undefined)[]> => {
    const found = await countErrors({ ...selection, site, range }, digests, context);
    return digests.map((digest) => found.get(digest));
  });
}

/** Of the whole retention. Incidents with that number, or that digest: none, one, or those that share the number. */
export function prepareIncidentLookup(
  site: string,
  wanted: { readonly number: number } | { readonly digest: string },
) {
  return prepareRead(site, {}, async (context): Promise<readonly Incident[]> => {
    if (!hasTraces(site, context)) return [];
    const range = resolveSiteRange(site, {}, context);
    const { incidents } = await listIncidents(
      {
        site,
        range,
        kinds: ["error", "action"],
        namespaces: [],
        order: "number",
        offset: 0,
        limit: Number.MAX_SAFE_INTEGER,
      },
      context,
    );
    return incidents.filter((incident) =>
      "number" in wanted ? incident.number === wanted.number : incident.digest === wanted.digest,
    );
  });
}

/** An incident that its number does not name alone. @throws {Unprocessable} `invalid_request` */
export function requireSingleIncident(incidents: readonly Incident[]): Incident | undefined {
  const [only, ...others] = incidents;
  if (others.length === 0) return only;
  const digests = incidents.map(({ digest }) => digest).join(", ");
  const message = `several incidents have this number; ask incidentByDigest for one of their digests: ${digests}`;
  throw createInvalidRequest([{ path: "incidentNumber", message }]);
}

export function prepareSamples(
  site: string,
  asked: RequestedRange,
  query: Omit<SampleQuery, "site" | "range">,
) {
  return prepareRead(site, asked, async (context): Promise<readonly TraceSummary[]> => {
    if (!hasTraces(site, context)) return [];
    const range = resolveSiteRange(site, asked, context);
    return await listSamples({ ...query, site, range }, context);
  });
}

/**
 * A sample is a trace and the span in it that has the error, or is the request. Ids of both may hold any text: what comes after
 * the last dash is the span's, whose own dashes are written `~1`.
 */
export function printSampleId({ trace_id, span_id }: Pick<TraceSummary, "trace_id" | "span_id">): string {
  return `${trace_id}-${span_id.replaceAll("~", "~0").replaceAll("-", "~1")}`;
}

/** What is no id has a part that is empty. */
export function readSampleId(id: string): { readonly traceId: string; readonly spanId: string } {
  const dash = id.lastIndexOf("-");
  const spanId = id
    .slice(dash + 1)
    .replaceAll("~1", "-")
    .replaceAll("~0", "~");
  return { traceId: id.slice(0, Math.max(0, dash)), spanId };
}

/** The newest samples of each digest, in the order of the digests. */
export function prepareSampleLists(
  site: string,
  requested: RequestedRange,
  query: Pick<SampleQuery, "candidates" | "limit">,
  digests: NonEmpty<string>,
) {
  return prepareRead(site, requested, async (context): Promise<readonly (readonly TraceSummary[])[]> => {
    if (!hasTraces(site, context)) return digests.map(() => []);
    const range = resolveSiteRange(site, requested, context);
    return await listSamplesByDigest({ ...query, site, range }, digests, context);
  });
}

export function prepareDeployMarkers(site: string, asked: RequestedRange, namespaces: readonly string[]) {
  return prepareRead(
    site,
    asked,
    (context): Promise<readonly DeployMarker[]> =>
      listDeployMarkers(site, resolveSiteRange(site, asked, context), namespaces, context),
  );
}

/** The namespaces of the requests of the retention, sorted. */
export function prepareNamespaces(site: string) {
  return prepareRead(site, {}, async (context): Promise<readonly string[]> => {
    const traces = context.sites.get(site)?.traces;
    if (traces === undefined) return [];
    const scope = { sources: [traces.source] as const, budget: createRequestBudget(context) };
    const range = resolveSiteRange(site, {}, context);
    const rows = await traces.store.actions({ ...scope, range, namespaces: [] }, context.signal);
    return [...new Set(rows.map(({ namespace }) => namespace))].toSorted(compare);
  });
}

/** How many rows `traces/errors` has of each revision, in their order. */
export function prepareErrorCounts(
  site: string,
  asked: RequestedRange,
  namespaces: readonly string[],
  revisions: readonly string[],
) {
  return prepareRead(site, asked, async (context): Promise<readonly number[]> => {
    const range = resolveSiteRange(site, asked, context);
    const found = await countErrorRows(site, range, namespaces, revisions, context);
    return revisions.map((revision) => found.get(revision) ?? 0);
  });
}

/** The bounds of a request for metrics; its default is the last hour. */
export function prepareMetricRange(
  site: string,
  asked: RequestedRange,
): PreparedOperation<Promise<{ readonly from: string; readonly to: string }>> {
  const run = async (context: Context) => {
    const now = context.now();
    const { start, end = now } = resolveBounds({ timeframe: "R1H", ...dropAbsent(asked) }, now);
    return { from: asked.start ?? printInstant(start ?? end), to: asked.end ?? printInstant(end) };
  };
  return { name: "metrics", scopes: ["metrics"], sites: () => [site], run };
}

function dropAbsent({ start, end, timeframe }: RequestedRange): RequestedRange {
  return { start, end, ...(timeframe === null || timeframe === undefined ? {} : { timeframe }) };
}
