// Links between domains. They stand in the telemetry schema itself and not in `.meshrc.yaml`: a link is resolved
// beside the rows that it starts from, where the whole row is at hand, so it needs no `selectionSet`, for which Mesh
// would stitch a single source; and beside a second source it is still one delegation. Each is batched: all rows of a
// level that ask for the same link with the same arguments become one request to each source.
import DataLoader from "dataloader";
import { extendSchema, type GraphQLSchema, isObjectType, parse } from "graphql";
import { yieldToEventLoop } from "../core/async/turns.ts";
import { hour, type Instant, minute, parseInstant, type TimeRange, toInclusiveEnd } from "../core/time.ts";
import {
  prepareLinkedLines,
  prepareLinkedMetricNames,
  prepareLinkedPods,
  type Row,
  readSubject,
  shiftInstant,
  toSnapshotTime,
} from "../operations/link-operations.ts";
import type { PreparedOperation } from "../operations/runtime/operation.ts";
import { createInvalidRequest } from "../operations/runtime/request-body.ts";
import type { Resolvers, Session } from "../operations/runtime/session.ts";
import {
  prepareLinkedDurations,
  prepareLinkedExceptions,
  prepareLinkedRequests,
  prepareLinkedSlowEvents,
  prepareLinkedSpans,
} from "../operations/trace-links.ts";
import { clientTypes, completeClientTypes } from "./existing-clients/client-schema.ts";
import { createBatchSchedule } from "./lists/list-turns.ts";

/** Links are nullable, whatever they answer: a failure of one must not take the row that it starts from. */
const typeDefs = /* GraphQL */ `
  extend type Query {
    "The sites that the token may see."
    sites: [Site!]!
    "One of them; null when there is none of that id."
    site("Its \`site_id\`." id: String!): Site
  }
  "What a token gives access to."
  type Site {
    "The \`site_id\` of every query."
    id: String!
    "The \`source_ids\` of its logs."
    sources: [String!]!
    "The names of its metrics; null where it has none configured."
    metric_names: [String!]
    "Its actions with their figures, of the requests that ended in the range."
    actions("Start of the range, inclusive." from: DateTime!, "End of the range, inclusive." to: DateTime!): [Action!]
  }
  "A trace within one site, as rows lead to it."
  type Trace {
    "As the row that leads here has it."
    trace_id: String!
    "The site whose spans and lines these are."
    site_id: String!
    "Every span, the root first; empty when the site has none of it, null when it has no traces."
    spans: [Span!]
    "The log lines that carry its id, oldest first, within an hour of the row that led here."
    log_lines(
      "At most this many, from 1 to 1000."
      limit: Int! = 100
    ): [LogLine!]
  }
  "The CPU that a pod used at a snapshot."
  type CpuPoint {
    "The snapshot."
    timestamp: DateTime!
    "Unit: billionths of a core."
    cpu_usage_nano_cores: Float!
  }
  extend type LogLine {
    "The trace whose id the line carries as \`trace_id\` or \`trace.id\`; null when it carries none."
    trace: Trace
    """
    The pod that the line names, at the last full minute before the line; null when it names none, or it was gone. Also where
    the line states no namespace and several of them have a pod of that name.
    """
    pod: PodsRow
  }
  extend type TraceSummary {
    "The trace that the request is part of."
    trace: Trace
    "The exceptions of the span of \`span_id\`, the earliest first; null when the site has no traces."
    exceptions: [SpanException!]
  }
  "An exception of a span: an event named \`exception\`."
  type SpanException {
    "What \`digests\` of a listing of errors takes."
    digest: String!
    "Its type; \`unknown\` when it has none."
    name: String!
    "What it says."
    message: String
    "As the client recorded it, one frame a line."
    stacktrace: String
  }
  extend type SlowEventAction {
    "The trace of \`trace_id\`."
    trace: Trace
  }
  extend type Span {
    "The pod that its resource attributes name, at the last full minute before it began; null as that of a line is."
    pod: PodsRow
  }
  extend type PodsRow {
    "The log lines that name the pod and no other namespace, newest first, of the minute before the snapshot."
    log_lines(
      "At most this many, from 1 to 1000."
      limit: Int! = 100
    ): [LogLine!]
    "The CPU it used, one point a minute, up to the snapshot."
    cpu(
      "How far back, from 1 to 1440."
      minutes: Int! = 60
    ): [CpuPoint!]
  }
  extend type Action {
    "Its newest requests in the range that the actions were asked for."
    traces(
      "At most this many, from 1 to 100."
      limit: Int! = 10
    ): [TraceSummary!]
    "The slow events within its requests, greatest impact first, of the spans that ended in that range."
    slow_events(
      "At most this many, from 1 to 100."
      limit: Int! = 10
    ): [SlowEvent!]
    "How long its requests of that range took, oldest first, by when they ended."
    durations(
      "How many minutes a point is wide, from 1 to 1440; points begin at whole multiples of it."
      minutes: Int! = 5
    ): [DurationPoint!]
  }
  "The requests of an action that ended within one point of its series."
  type DurationPoint {
    "Where the point begins."
    timestamp: DateTime!
    "Requests."
    throughput: Float!
    "Their mean duration; null where there is none. Unit: milliseconds."
    mean: Float
  }
`;

// ---- Where rows come from ---------------------------------------------------------------------------------------

/** The request that a row was answered to: rows do not say of which site they are where a request names one. */
interface RowOrigin {
  readonly site_id?: unknown;
  readonly from?: unknown;
  readonly to?: unknown;
}
const origin = Symbol("origin");

export function markRows(answer: unknown, request: RowOrigin): unknown {
  if (Array.isArray(answer)) {
    for (const row of answer) if (typeof row === "object" && row !== null) row[origin] = request;
  }
  return answer;
}

export type MarkedRow = Row & { readonly [origin]?: RowOrigin };

export function readSite(row: MarkedRow): string {
  return String(row.site_id ?? row[origin]?.site_id);
}

export function toInstant(value: unknown): Instant {
  return parseInstant(String(value)) ?? (0n as Instant);
}

// ---- Batches ----------------------------------------------------------------------------------------------------

type Loader = DataLoader<unknown, unknown>;
const loaders = new WeakMap<Session, Map<string, Loader>>();

/** A pod is looked for under nine names, all of which are compared with each line that is found. */
const maxBatchSize = 200;

/** Asks together with all that ask for the same link of the same site before anything else happens. */
export function loadBatched<Question>(
  session: Session,
  link: string,
  site: string,
  question: Question,
  prepare: (questions: readonly Question[]) => PreparedOperation<Promise<unknown>>,
): Promise<unknown> {
  const known = loaders.get(session) ?? new Map<string, Loader>();
  loaders.set(session, known);
  const key = `${link} ${site}`;
  let loader = known.get(key);
  if (loader === undefined) {
    loader = new DataLoader(
      async (questions) => {
        // The batches of thousands of rows are due at once, and those that fail need no wait.
        await yieldToEventLoop();
        // A loader is asked by one link only, so these are its questions.
        const answers = await session.runLink(link, () => prepare(questions as readonly Question[]));
        if (!Array.isArray(answers)) throw new Error(`${link} answered no list`);
        return answers.map((answer) => markRows(answer, { site_id: site }));
      },
      { cache: false, maxBatchSize: maxBatchSize, batchScheduleFn: createBatchSchedule(session) },
    );
    known.set(key, loader);
  }
  return loader.load(question);
}

// ---- Resolvers --------------------------------------------------------------------------------------------------

interface TraceRef {
  readonly trace_id: string;
  readonly site_id: string;
  readonly from: Instant;
  readonly to: Instant;
  /** Where they are read already. */
  readonly spans?: readonly Row[];
}

/** `row` tells the site. */
export function buildTraceRef(row: MarkedRow, id: unknown, start: Instant, end = start): TraceRef | null {
  if (typeof id !== "string" || id === "") return null;
  return {
    trace_id: id,
    site_id: readSite(row),
    from: shiftInstant(start, -hour),
    to: shiftInstant(end, hour),
  };
}

const tracesOfLines = new WeakMap<MarkedRow, TraceRef | null>();

/** Reads the line once, by however many aliases it is asked for. */
function findTraceOfLine(line: MarkedRow): TraceRef | null {
  const known = tracesOfLines.get(line);
  if (known !== undefined) return known;
  const found = buildTraceRef(line, readSubject("trace", line.json)?.id, toInstant(line.timestamp));
  tracesOfLines.set(line, found);
  return found;
}

/** @throws {Unprocessable} `invalid_request` */
export function checkBetween(name: string, value: number, most: number): number {
  if (value >= 1 && value <= most) return value;
  throw createInvalidRequest([{ path: name, message: `expected a whole number from 1 to ${most}` }]);
}

const resolvers: Resolvers = {
  Query: {
    sites: (_, __, { readout }) => readout.sites.map(({ id }) => ({ id })),
    site: (_, { id }: { readonly id: string }, { readout }) =>
      readout.sites.some((site) => site.id === id) ? { id } : null,
  },
  Site: {
    sources: ({ id }: SiteRef, _, { readout }) => [
      ...(readout.sites.find((site) => site.id === id)?.logs?.sources.keys() ?? []),
    ],
    metric_names: ({ id }: SiteRef, _, { readout }) =>
      readout.runLink("Site.metric_names", () => prepareLinkedMetricNames(id)),
    actions: async (
      { id }: SiteRef,
      { from, to }: { readonly from: string; readonly to: string },
      { readout },
    ) => {
      const request = { site_id: id, from, to };
      return markRows(await readout.runOperation("tracing.actions", request), request);
    },
  },
  Trace: {
    spans: ({ site_id: site, trace_id, spans }: TraceRef, _, { readout }) =>
      spans ?? loadBatched(readout, "Trace.spans", site, trace_id, (ids) => prepareLinkedSpans(site, ids)),
    log_lines: ({ site_id: site, trace_id: id, from, to }: TraceRef, { limit }: LimitArgument, { readout }) =>
      loadBatched(readout, `Trace.log_lines ${limit}`, site, { id, from, to, limit }, (questions) => {
        checkBetween("limit", limit, 1_000);
        return prepareLinkedLines(site, "trace", "asc", questions);
      }),
  },
  LogLine: {
    trace: findTraceOfLine,
    pod: async (line: MarkedRow, _, { readout }) => {
      const said = readSubject("pod", line.json);
      if (said === undefined) return null;
      return findPod(readout, "LogLine.pod", line, said.id, said.namespace, line.timestamp);
    },
  },
  TraceSummary: {
    trace: (row: MarkedRow) => {
      const end = toInstant(row.time);
      return buildTraceRef(row, row.trace_id, shiftInstant(end, -Math.ceil(Number(row.duration))), end);
    },
    exceptions: (row: MarkedRow, _, { readout }) => {
      const site = readSite(row);
      const span = { trace_id: String(row.trace_id), span_id: String(row.span_id) };
      const names = { namespace: String(row.namespace), action: String(row.action_name) };
      return loadBatched(readout, "TraceSummary.exceptions", site, { ...span, ...names }, (questions) =>
        prepareLinkedExceptions(site, questions),
      );
    },
  },
  SlowEventAction: {
    trace: (row: MarkedRow) => buildTraceRef(row, row.trace_id, toInstant(row.start_time)),
  },
  Span: {
    pod: async (span: MarkedRow, _, { readout }) => {
      const { "k8s.pod.name": pod, "k8s.namespace.name": namespace } = (span.resource_attributes ??
        {}) as Row;
      if (typeof pod !== "string") return null;
      const place = typeof namespace === "string" ? namespace : undefined;
      return findPod(readout, "Span.pod", span, pod, place, span.start_time);
    },
  },
  PodsRow: {
    log_lines: (row: MarkedRow, { limit }: LimitArgument, { readout }) => {
      const site = readSite(row);
      const to = toInstant(row.timestamp);
      const { pod: id, namespace } = readPodNames(row);
      const question = { id, namespace, from: shiftInstant(to, -minute), to, limit };
      return loadBatched(readout, `PodsRow.log_lines ${limit}`, site, question, (questions) => {
        checkBetween("limit", limit, 1_000);
        return prepareLinkedLines(site, "pod", "desc", questions);
      });
    },
    cpu: (row: MarkedRow, { minutes }: { readonly minutes: number }, { readout }) => {
      const site = readSite(row);
      const to = toSnapshotTime(toInstant(row.timestamp));
      const question = { ...readPodNames(row), from: to - (minutes - 1) * minute, to };
      return loadBatched(readout, `PodsRow.cpu ${minutes}`, site, question, (questions) => {
        checkBetween("minutes", minutes, 1_440);
        return prepareLinkedPods(site, questions);
      });
    },
  },
  Action: {
    traces: (row: MarkedRow, { limit }: LimitArgument, { readout }) => {
      const site = readSite(row);
      const { from, to } = row[origin] ?? {};
      return loadBatched(
        readout,
        `Action.traces ${limit} ${from} ${to}`,
        site,
        String(row.digest),
        (digests) => {
          checkBetween("limit", limit, 100);
          return prepareLinkedRequests(site, readRange(row), limit, digests);
        },
      );
    },
    slow_events: (row: MarkedRow, { limit }: LimitArgument, { readout }) => {
      const site = readSite(row);
      const { from, to } = row[origin] ?? {};
      return loadBatched(
        readout,
        `Action.slow_events ${limit} ${from} ${to}`,
        site,
        readActionNames(row),
        (actions) => {
          checkBetween("limit", limit, 100);
          return prepareLinkedSlowEvents(site, readRange(row), limit, actions);
        },
      );
    },
    durations: (row: MarkedRow, { minutes }: { readonly minutes: number }, { readout }) => {
      const site = readSite(row);
      const { from, to } = row[origin] ?? {};
      return loadBatched(
        readout,
        `Action.durations ${minutes} ${from} ${to}`,
        site,
        readActionNames(row),
        (actions) => {
          checkBetween("minutes", minutes, 1_440);
          return prepareLinkedDurations(site, readRange(row), minutes * minute, actions);
        },
      );
    },
  },
};

interface SiteRef {
  readonly id: string;
}
/** The range that a row's request asked for. */
function readRange(row: MarkedRow): TimeRange {
  const { from, to } = row[origin] ?? {};
  return { from: toInstant(from), to: toInclusiveEnd(toInstant(to)) };
}

function readActionNames(row: Row): { readonly namespace: string; readonly action: string } {
  return { namespace: String(row.namespace), action: String(row.action) };
}

interface LimitArgument {
  readonly limit: number;
}

function readPodNames(row: Row): { readonly pod: string; readonly namespace: string } {
  return { pod: String(row.pod_name), namespace: String(row.pod_namespace) };
}

/** Null also where several namespaces have a pod of the name: which one is meant is not known. */
async function findPod(
  session: Session,
  link: string,
  row: MarkedRow,
  pod: string,
  namespace: string | undefined,
  moment: unknown,
): Promise<unknown> {
  const site = readSite(row);
  const at = toSnapshotTime(toInstant(moment));
  const found = await loadBatched(session, link, site, { pod, namespace, from: at, to: at }, (questions) =>
    prepareLinkedPods(site, questions),
  );
  return Array.isArray(found) && found.length === 1 ? found[0] : null;
}

/** The schema with the links, and with the fields that existing clients expect. */
export function addLinks(schema: GraphQLSchema): GraphQLSchema {
  const extended = extendSchema(schema, parse(`${clientTypes}\n${typeDefs}`));
  completeClientTypes(extended);
  setResolvers(extended, resolvers);
  return extended;
}

/** Gives fields their resolvers. */
export function setResolvers(schema: GraphQLSchema, resolvers: Resolvers): void {
  for (const [typeName, fields] of Object.entries(resolvers)) {
    const type = schema.getType(typeName);
    if (!isObjectType(type)) throw new Error(`no type ${typeName}`);
    for (const [name, resolve] of Object.entries(fields)) {
      const field = type.getFields()[name];
      if (field === undefined) throw new Error(`no field ${typeName}.${name}`);
      field.resolve = resolve;
    }
  }
}
