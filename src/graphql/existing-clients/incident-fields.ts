// Incidents and their samples for existing clients: errors by their digests and actions by theirs, of one site.
import DataLoader from "dataloader";
import { isNonEmpty } from "../../core/collections.ts";
import { printAttribute } from "../../core/json/lossless-json.ts";
import type { TraceSummary } from "../../core/rows.ts";
import { parseInstant, printInstantToMilli, type TimeRange } from "../../core/time.ts";
import {
  deriveIncidentDigest,
  describeNewestRow,
  type ErrorFigures,
  expectedTime,
  type Incident,
  type IncidentPage,
  type IncidentSelection,
  prepareErrorFigures,
  prepareIncidentLookup,
  prepareIncidents,
  prepareSampleLists,
  prepareSamples,
  printSampleId,
  type RequestedRange,
  readSampleId,
  requireSingleIncident,
} from "../../operations/incident-operations.ts";
import { createInvalidRequest } from "../../operations/runtime/request-body.ts";
import type { Resolvers, Session } from "../../operations/runtime/session.ts";
import { createBatchSchedule } from "../lists/list-turns.ts";
import { type BackReference, loadTogether, refuseBelowRows } from "./batches.ts";
import { buildTimeline } from "./timeline.ts";

/** What the lists of incidents take. */
export interface IncidentArguments extends RequestedRange {
  readonly namespaces?: readonly (string | null)[] | null;
  readonly marker?: string | null;
  readonly query?: string | null;
  readonly state?: string | null;
  readonly limit?: number | null;
  readonly offset?: number | null;
  readonly order?: "ID" | "LAST" | null;
  readonly actionName?: string | null;
}

export interface AppRow {
  readonly id: string;
}

const maxIncidents = 1_000;
export const maxOffset = 100_000;
const defaultSamples = 200;
const maxSamples = 1_000;
/** Of all incidents of a page. */
const maxSamplesOfPage = 100_000;

/** A preset of infinity is no bound: existing clients count on lists that are whole. @throws {Unprocessable} `invalid_request` */
export function readCount(
  path: string,
  value: number | null | undefined,
  preset: number,
  most: number,
): number {
  if (value === null || value === undefined) return preset;
  if (value >= 0 && value <= most) return value;
  throw createInvalidRequest([{ path, message: `expected a whole number from 0 to ${most}` }]);
}

type IncidentKind = Incident["kind"];

/** An incident with what its page was asked by. */
interface IncidentRow extends BackReference {
  readonly __typename: "ExceptionIncident" | "PerformanceIncident";
  readonly incident: Incident;
  readonly app: AppRow;
  readonly pageSize: number;
  /** Of an error. */
  readonly figures: () => Promise<ErrorFigures>;
}

/** A page of a site's incidents; all of them without a limit, and an error where there are more than an answer may have. */
export async function readIncidentPage(
  session: Session,
  app: AppRow,
  kinds: readonly IncidentKind[],
  args: IncidentArguments,
) {
  // Every incident is open.
  const isNone = args.state !== null && args.state !== undefined && args.state !== "OPEN";
  const selection = {
    kinds: isNone ? [] : kinds,
    namespaces: (args.namespaces ?? []).filter((name) => name !== null),
    action: args.actionName ?? undefined,
    revision: args.marker ?? undefined,
    text: args.query ?? undefined,
  } as const;
  const page: IncidentPage = await session.runLink("App.incidents", () =>
    prepareIncidents(app.id, args, {
      ...selection,
      order: args.order === "ID" ? "number" : "last",
      limit: readCount("limit", args.limit, Number.POSITIVE_INFINITY, maxIncidents),
      offset: readCount("offset", args.offset, 0, maxOffset),
    }),
  );
  const { range, incidents } = page;
  const loader = createFiguresLoader(session, app, range, selection);
  return {
    rows: incidents.map((incident) =>
      toIncidentRow(
        app,
        incident,
        incidents.length,
        async () => incident.figures ?? (await loader.load(incident.digest)) ?? describeNewestRow(incident),
      ),
    ),
    total: async (): Promise<number> => {
      if (page.total !== undefined) return page.total;
      const all = { ...selection, order: "number", offset: 0, limit: 0 } as const;
      const { total } = await session.runLink("App.incidents.total", () =>
        prepareIncidents(app.id, range, all),
      );
      if (total === undefined) throw new RangeError(`the incidents of ${app.id} were not counted`);
      return total;
    },
  };
}

/** All incidents of a page that are asked for their figures are counted in one reading. */
function createFiguresLoader(
  session: Session,
  app: AppRow,
  range: TimeRange,
  selection: Pick<IncidentSelection, "namespaces" | "action" | "revision">,
): DataLoader<string, ErrorFigures | undefined> {
  return new DataLoader(
    async (digests) => {
      if (!isNonEmpty(digests)) return [];
      return await session.runLink("ExceptionIncident.count", () =>
        prepareErrorFigures(app.id, range, selection, digests),
      );
    },
    { maxBatchSize: 1_000, batchScheduleFn: createBatchSchedule(session) },
  );
}

function toIncidentRow(
  app: AppRow,
  incident: Incident,
  pageSize: number,
  figures: IncidentRow["figures"],
): IncidentRow {
  return {
    __typename: incident.kind === "error" ? "ExceptionIncident" : "PerformanceIncident",
    incident,
    app,
    pageSize,
    figures,
  };
}

/** The incident of a number or a digest; null where the retention has none. */
export async function findIncident(
  session: Session,
  app: AppRow,
  wanted: { readonly number: number } | { readonly digest: string },
): Promise<IncidentRow | null> {
  const found: readonly Incident[] = await session.runLink("App.incident", () => {
    const prepared = prepareIncidentLookup(app.id, wanted);
    const run = async (...given: Parameters<typeof prepared.run>) => {
      const incidents = await prepared.run(...given);
      requireSingleIncident(incidents);
      return incidents;
    };
    return { ...prepared, run };
  });
  const [incident] = found;
  if (incident === undefined) return null;
  return toIncidentRow(app, incident, 1, async () => requireFigures(incident));
}

/** Of an incident whose rows were all counted. @throws {RangeError} */
function requireFigures({ digest, figures }: Incident): ErrorFigures {
  if (figures === undefined) throw new RangeError(`the rows of ${digest} were not counted`);
  return figures;
}

// ---- Samples ------------------------------------------------------------------------------------------------

/** One request of an incident, or one error. */
interface SampleRow {
  readonly __typename: "ExceptionSample" | "PerformanceSample";
  readonly app: AppRow;
  readonly row: TraceSummary;
  readonly incident: IncidentRow | undefined;
}

interface SamplesArguments extends RequestedRange {
  readonly limit?: number | null;
}

interface SampleArguments {
  readonly id?: string | null;
  readonly timestamp?: string | null;
  readonly timerange?: readonly (string | null)[] | null;
}

/** Of all incidents of an answer that are asked for the same, in one reading. */
async function readSamples(
  session: Session,
  of: IncidentRow,
  args: SamplesArguments,
): Promise<readonly SampleRow[]> {
  await refuseBelowRows(of, "samples", session);
  const { app, incident } = of;
  const candidates = incident.kind === "error" ? "errors" : "requests";
  const { start, end, timeframe, limit: most } = args;
  const rows: readonly TraceSummary[] = await loadTogether(
    session,
    `${of.__typename}.samples`,
    JSON.stringify([app.id, start, end, timeframe, most]),
    incident.digest,
    (digests) => {
      const limit = readCount("limit", most, defaultSamples, maxSamples);
      requireFewSamples(of.pageSize, limit);
      return prepareSampleLists(app.id, args, { candidates, limit }, digests);
    },
  );
  return rows.map((row) => toSampleRow(app, row, of));
}

/** @throws {Unprocessable} `invalid_request` */
function requireFewSamples(incidents: number, limit: number): void {
  if (incidents * limit <= maxSamplesOfPage) return;
  const most = Math.floor(maxSamplesOfPage / incidents);
  const message = `expected at most ${most} samples of each of ${incidents} incidents`;
  throw createInvalidRequest([{ path: "limit", message }]);
}

function toSampleRow(app: AppRow, row: TraceSummary, incident: IncidentRow | undefined): SampleRow {
  const kind = row.exception === undefined ? "PerformanceSample" : "ExceptionSample";
  return { __typename: kind, app, row, incident };
}

/** Samples of any incident of a site, newest first. */
export async function searchSamples(
  session: Session,
  app: AppRow,
  kind: IncidentKind,
  range: RequestedRange,
  query: {
    readonly namespaces: readonly string[];
    readonly text?: string | undefined;
    readonly limit: number;
  },
): Promise<readonly SampleRow[]> {
  const candidates = kind === "error" ? "errors" : "requests";
  const rows = await session.runLink("Organization.search", () =>
    prepareSamples(app.id, range, { candidates, ...query }),
  );
  return rows.map((row) => toSampleRow(app, row, undefined));
}

async function findSample(session: Session, of: IncidentRow, { id, timestamp, timerange }: SampleArguments) {
  await refuseBelowRows(of, "sample", session);
  const at = timestamp ?? undefined;
  await requireTimestamp(session, of, at);
  const [start = undefined, end = undefined] = timerange ?? [at, at];
  if (id === null || id === undefined) {
    const [newest = null] = await readSamples(session, of, { start, end, limit: 1 });
    return newest;
  }
  const { app, incident } = of;
  const { traceId, spanId } = readSampleId(id);
  if (traceId === "") return null;
  const candidates = incident.kind === "error" ? "errors" : "requests";
  // All incidents of an answer look for one id in the same few rows.
  const rows: readonly TraceSummary[] = await loadTogether(
    session,
    `${of.__typename}.sample`,
    JSON.stringify([app.id, start, end, id]),
    traceId,
    () => {
      const prepared = prepareSamples(app.id, { start, end }, { candidates, traceId, limit: maxSamples });
      return { ...prepared, run: async (context) => [await prepared.run(context)] };
    },
  );
  const row = rows.find((one) => one.span_id === spanId && isOf(incident, one));
  return row === undefined ? null : toSampleRow(app, row, of);
}

/** Existing clients send it as a text that the schema does not look at. @throws {GraphQLError} `invalid_request` */
async function requireTimestamp(session: Session, of: IncidentRow, at: string | undefined): Promise<void> {
  if (at === undefined || parseInstant(at) !== undefined) return;
  await session.runLink(`${of.__typename}.sample`, () => {
    throw createInvalidRequest([{ path: "timestamp", message: expectedTime }]);
  });
}

function isOf({ kind, digest, namespace, action }: Incident, row: TraceSummary): boolean {
  if (kind === "error") return row.exception?.digest === digest;
  return row.namespace === namespace && row.action_name === action;
}

/** Backtraces are kept as text: each line is all that is known of a frame. */
function toBacktrace(stacktrace: string | undefined) {
  return (stacktrace ?? "")
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((original) => ({ original }));
}

/** The frames of a sample's error; none where the id is no sample's. */
export async function readBacktrace(session: Session, app: AppRow, id: string) {
  const { traceId, spanId } = readSampleId(id);
  const limit = traceId === "" ? 0 : maxSamples;
  const rows = await session.runLink("App.backtrace", () =>
    prepareSamples(app.id, {}, { candidates: "errors", traceId, limit }),
  );
  const row = rows.find(({ span_id }) => span_id === spanId);
  return toBacktrace(row?.exception?.stacktrace);
}

// ---- Resolvers ----------------------------------------------------------------------------------------------

const commonOfIncidents = {
  app: ({ app }: IncidentRow) => ({ ...app, isBackReference: true }),
  id: ({ incident }: IncidentRow) => incident.digest,
  number: ({ incident }: IncidentRow) => incident.number,
  digests: ({ incident }: IncidentRow) => [incident.digest],
  namespace: ({ incident }: IncidentRow) => incident.namespace,
  state: () => "OPEN",
  lastOccurredAt: ({ incident }: IncidentRow) => printInstantToMilli(incident.last),
  lastSampleOccurredAt: ({ incident }: IncidentRow) => printInstantToMilli(incident.last),
  updatedAt: ({ incident }: IncidentRow) => printInstantToMilli(incident.last),
  hasSamplesInRetention: () => true,
  samples: (of: IncidentRow, args: SamplesArguments, { readout: session }: { readonly readout: Session }) =>
    readSamples(session, of, args),
  sample: (of: IncidentRow, args: SampleArguments, { readout }: { readonly readout: Session }) =>
    findSample(readout, of, args),
};

const commonOfSamples = {
  app: ({ app }: SampleRow) => ({ ...app, isBackReference: true }),
  appId: ({ app }: SampleRow) => app.id,
  id: ({ row }: SampleRow) => printSampleId(row),
  action: ({ row }: SampleRow) => row.action_name,
  namespace: ({ row }: SampleRow) => row.namespace,
  revision: ({ row }: SampleRow) => row.revision ?? null,
  duration: ({ row }: SampleRow) => Number(row.duration) / 1e6,
  time: ({ row }: SampleRow) => printInstantToMilli(row.time),
  createdAt: ({ row }: SampleRow) => printInstantToMilli(row.time),
  overview: ({ row }: SampleRow) =>
    Object.entries(row.tags).map(([key, value]) => ({ key, value: printAttribute(value) })),
  incident: ({ incident }: SampleRow) => incident && { ...incident, isBackReference: true },
  incidentId: ({ incident, row }: SampleRow) => incident?.incident.digest ?? deriveIncidentDigest(row),
};

export const incidentResolvers: Resolvers = {
  ExceptionIncident: {
    ...commonOfIncidents,
    actionNames: async ({ figures }: IncidentRow) => (await figures()).actions,
    count: async ({ figures }: IncidentRow) => (await figures()).count,
    createdAt: async ({ figures }: IncidentRow) => printInstantToMilli((await figures()).first),
    errorGroupingStrategy: () => "TYPE_AND_ACTION",
    exceptionName: ({ incident }: IncidentRow) => incident.exception?.name ?? null,
    exceptionMessage: ({ incident }: IncidentRow) => incident.exception?.message ?? null,
    firstBacktraceLine: ({ incident }: IncidentRow) =>
      toBacktrace(incident.exception?.stacktrace)[0]?.original ?? null,
    scopedCount: async ({ figures }: IncidentRow) => (await figures()).count,
  },
  PerformanceIncident: {
    ...commonOfIncidents,
    actionNames: ({ incident }: IncidentRow) => [incident.action],
    count: ({ incident }: IncidentRow) => incident.stats?.count ?? 0,
    scopedCount: ({ incident }: IncidentRow) => incident.stats?.count ?? 0,
    mean: ({ incident }: IncidentRow) => incident.stats?.mean ?? 0,
    totalDuration: ({ incident: { stats } }: IncidentRow) =>
      stats === undefined ? 0 : stats.mean * stats.count,
    hasNPlusOne: ({ incident }: IncidentRow) => incident.stats?.has_npo ?? null,
  },
  ExceptionSample: {
    ...commonOfSamples,
    exception: ({ row: { exception } }: SampleRow) => ({
      name: exception?.name ?? null,
      message: exception?.message ?? null,
      backtrace: toBacktrace(exception?.stacktrace),
    }),
  },
  PerformanceSample: {
    ...commonOfSamples,
    hasNPlusOne: ({ row }: SampleRow) => row.has_npo,
    timeline: ({ app, row }: SampleRow, _: unknown, { readout }: { readonly readout: Session }) =>
      buildTimeline(readout, app.id, row),
  },
};
