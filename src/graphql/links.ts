// Links between domains. They stand in the telemetry schema itself and not in `.meshrc.yaml`: a link is resolved
// beside the rows that it starts from, where the whole row is at hand, so it needs no `selectionSet`, for which Mesh
// would stitch a single source; and beside a second source it is still one delegation. Each is batched: all rows of a
// level that ask for the same link with the same arguments become one request to each source.
import { setImmediate } from "node:timers";
import DataLoader from "dataloader";
import { extendSchema, type GraphQLSchema, isObjectType, parse } from "graphql";
import { hour, type Instant, inclusiveEnd, minute, parseInstant, type TimeRange } from "../core/time.ts";
import {
  linkedDurations,
  linkedLines,
  linkedNames,
  linkedPods,
  linkedRequests,
  linkedSlowEvents,
  linkedSpans,
  type Row,
  readSubject,
  shift,
  snapshotAt,
} from "../operations/link-operations.ts";
import type { Prepared } from "../operations/runtime/operation.ts";
import { invalidRequest } from "../operations/runtime/request-body.ts";
import * as apps from "./organization-compat.ts";
import type { Resolvers, Session } from "./session.ts";

const typeDefs = /* GraphQL */ `
  extend type Query {
    "The sites that the token may see."
    sites: [Site!]
    "One of them; null when there is none of that id."
    site("Its \`site_id\`." id: String!): Site
  }
  "What a token gives access to."
  type Site {
    "The \`site_id\` of every query."
    id: String!
    "The \`source_ids\` of its logs."
    sources: [String!]
    "The names of its metrics; null where it has none configured."
    metric_names: [String!]
    "Its actions with their figures, of the requests that ended in the range."
    actions("Start of the range, inclusive." from: DateTime!, "End of the range, inclusive." to: DateTime!): [Action!]
  }
  "A trace within one site, as rows lead to it."
  type Trace {
    "As the row that leads here has it."
    trace_id: String!
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
    timestamp: DateTime
    "Unit: billionths of a core."
    cpu_usage_nano_cores: Float
  }
  extend type LogLine {
    "The trace whose id the line carries as \`trace_id\` or \`trace.id\`; null when it carries none."
    trace: Trace
    "The pod that the line names, at the last full minute before the line; null when it names none, or it was gone."
    pod: PodsRow
  }
  extend type TraceSummary {
    "The trace that the request is part of."
    trace: Trace
  }
  extend type SlowEventAction {
    "The trace of \`trace_id\`."
    trace: Trace
  }
  extend type Span {
    "The pod that its resource attributes name, at the last full minute before it began."
    pod: PodsRow
  }
  extend type PodsRow {
    "The log lines that name the pod, newest first, of the minute before the snapshot."
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
    timestamp: DateTime
    "Requests."
    throughput: Float
    "Their mean duration; null where there is none. Unit: milliseconds."
    mean: Float
  }
`;

// ---- Where rows come from ---------------------------------------------------------------------------------------

/** The request that a row was answered to: rows do not say of which site they are where a request names one. */
interface Origin {
  readonly site_id?: unknown;
  readonly from?: unknown;
  readonly to?: unknown;
}
const origin = Symbol("origin");

export function markRows(answer: unknown, request: Origin): unknown {
  if (Array.isArray(answer)) {
    for (const row of answer) if (typeof row === "object" && row !== null) row[origin] = request;
  }
  return answer;
}

type Marked = Row & { readonly [origin]?: Origin };

function siteOf(row: Marked): string {
  return String(row.site_id ?? row[origin]?.site_id);
}

function instantOf(value: unknown): Instant {
  return parseInstant(String(value)) ?? (0n as Instant);
}

// ---- Batches ----------------------------------------------------------------------------------------------------

type Loader = DataLoader<unknown, unknown>;
const loaders = new WeakMap<Session, Map<string, Loader>>();

/** Queries may have 1,000 terms, and a pod is looked for under four names. */
const mostAtOnce = 200;

/** Asks together with all that ask for the same link of the same site before anything else happens. */
function load<Question>(
  session: Session,
  link: string,
  site: string,
  question: Question,
  prepare: (questions: readonly Question[]) => Prepared,
): Promise<unknown> {
  const known = loaders.get(session) ?? new Map<string, Loader>();
  loaders.set(session, known);
  const key = `${link} ${site}`;
  let loader = known.get(key);
  if (loader === undefined) {
    loader = new DataLoader(
      async (questions) => {
        // A loader is asked by one link only, so these are its questions.
        const answers = await session.read(link, () => prepare(questions as readonly Question[]));
        if (!Array.isArray(answers)) throw new Error(`${link} answered no list`);
        return answers.map((answer) => markRows(answer, { site_id: site }));
      },
      { cache: false, maxBatchSize: mostAtOnce, batchScheduleFn: (run) => void setImmediate(run) },
    );
    known.set(key, loader);
  }
  return loader.load(question);
}

// ---- Resolvers --------------------------------------------------------------------------------------------------

interface TraceRef {
  readonly trace_id: string;
  readonly site: string;
  readonly from: Instant;
  readonly to: Instant;
}

function traceAround(row: Marked, id: unknown, start: Instant, end = start): TraceRef | null {
  if (typeof id !== "string" || id === "") return null;
  return { trace_id: id, site: siteOf(row), from: shift(start, -hour), to: shift(end, hour) };
}

/** @throws {Unprocessable} `invalid_request` */
function within(name: string, value: number, most: number): number {
  if (value >= 1 && value <= most) return value;
  throw invalidRequest([{ path: name, message: `expected a whole number from 1 to ${most}` }]);
}

const resolvers: Resolvers = {
  Query: {
    sites: (_, __, { readout }) => readout.sites.map(({ id }) => ({ id })),
    site: (_, { id }: { readonly id: string }, { readout }) =>
      readout.sites.some((site) => site.id === id) ? { id } : null,
  },
  Site: {
    sources: ({ id }: Site, _, { readout }) => [
      ...(readout.sites.find((site) => site.id === id)?.logs?.sources.keys() ?? []),
    ],
    metric_names: ({ id }: Site, _, { readout }) => readout.read("Site.metric_names", () => linkedNames(id)),
    actions: async (
      { id }: Site,
      { from, to }: { readonly from: string; readonly to: string },
      { readout },
    ) => {
      const request = { site_id: id, from, to };
      return markRows(await readout.ask("tracing.actions", request), request);
    },
  },
  Trace: {
    spans: ({ site, trace_id }: TraceRef, _, { readout }) =>
      load(readout, "Trace.spans", site, trace_id, (ids) => linkedSpans(site, ids)),
    log_lines: ({ site, trace_id: id, from, to }: TraceRef, { limit }: Limited, { readout }) =>
      load(readout, `Trace.log_lines ${limit}`, site, { id, from, to, limit }, (questions) => {
        within("limit", limit, 1_000);
        return linkedLines(site, "trace", "asc", questions);
      }),
  },
  LogLine: {
    trace: (line: Marked) => traceAround(line, readSubject("trace", line.json), instantOf(line.timestamp)),
    pod: async (line: Marked, _, { readout }) => {
      const pod = readSubject("pod", line.json);
      return pod === undefined ? null : podAt(readout, "LogLine.pod", line, pod, undefined, line.timestamp);
    },
  },
  TraceSummary: {
    trace: (row: Marked) => {
      const end = instantOf(row.time);
      return traceAround(row, row.trace_id, shift(end, -Math.ceil(Number(row.duration))), end);
    },
  },
  SlowEventAction: {
    trace: (row: Marked) => traceAround(row, row.trace_id, instantOf(row.start_time)),
  },
  Span: {
    pod: async (span: Marked, _, { readout }) => {
      const { "k8s.pod.name": pod, "k8s.namespace.name": namespace } = (span.resource_attributes ??
        {}) as Row;
      if (typeof pod !== "string") return null;
      const place = typeof namespace === "string" ? namespace : undefined;
      return podAt(readout, "Span.pod", span, pod, place, span.start_time);
    },
  },
  PodsRow: {
    log_lines: (row: Marked, { limit }: Limited, { readout }) => {
      const site = siteOf(row);
      const to = instantOf(row.timestamp);
      const question = { id: String(row.pod_name), from: shift(to, -minute), to, limit };
      return load(readout, `PodsRow.log_lines ${limit}`, site, question, (questions) => {
        within("limit", limit, 1_000);
        return linkedLines(site, "pod", "desc", questions);
      });
    },
    cpu: (row: Marked, { minutes }: { readonly minutes: number }, { readout }) => {
      const site = siteOf(row);
      const to = snapshotAt(instantOf(row.timestamp));
      const question = { ...podOf(row), from: to - (minutes - 1) * minute, to };
      return load(readout, `PodsRow.cpu ${minutes}`, site, question, (questions) => {
        within("minutes", minutes, 1_440);
        return linkedPods(site, questions);
      });
    },
  },
  Action: {
    traces: (row: Marked, { limit }: Limited, { readout }) => {
      const site = siteOf(row);
      const { from, to } = row[origin] ?? {};
      return load(readout, `Action.traces ${limit} ${from} ${to}`, site, String(row.digest), (digests) => {
        within("limit", limit, 100);
        return linkedRequests(site, rangeOf(row), limit, digests);
      });
    },
    slow_events: (row: Marked, { limit }: Limited, { readout }) => {
      const site = siteOf(row);
      const { from, to } = row[origin] ?? {};
      return load(readout, `Action.slow_events ${limit} ${from} ${to}`, site, namesOf(row), (actions) => {
        within("limit", limit, 100);
        return linkedSlowEvents(site, rangeOf(row), limit, actions);
      });
    },
    durations: (row: Marked, { minutes }: { readonly minutes: number }, { readout }) => {
      const site = siteOf(row);
      const { from, to } = row[origin] ?? {};
      return load(readout, `Action.durations ${minutes} ${from} ${to}`, site, namesOf(row), (actions) => {
        within("minutes", minutes, 1_440);
        return linkedDurations(site, rangeOf(row), minutes * minute, actions);
      });
    },
  },
};

interface Site {
  readonly id: string;
}
/** The range that a row's request asked for. */
function rangeOf(row: Marked): TimeRange {
  const { from, to } = row[origin] ?? {};
  return { from: instantOf(from), to: inclusiveEnd(String(to), instantOf(to)) };
}

function namesOf(row: Row): { readonly namespace: string; readonly action: string } {
  return { namespace: String(row.namespace), action: String(row.action) };
}

interface Limited {
  readonly limit: number;
}

function podOf(row: Row): { readonly pod: string; readonly namespace: string } {
  return { pod: String(row.pod_name), namespace: String(row.pod_namespace) };
}

async function podAt(
  session: Session,
  link: string,
  row: Marked,
  pod: string,
  namespace: string | undefined,
  moment: unknown,
): Promise<unknown> {
  const site = siteOf(row);
  const at = snapshotAt(instantOf(moment));
  const found = await load(session, link, site, { pod, namespace, from: at, to: at }, (questions) =>
    linkedPods(site, questions),
  );
  return Array.isArray(found) ? (found[0] ?? null) : null;
}

/** The schema with the links, and with the fields that existing clients expect. */
export function addLinks(schema: GraphQLSchema): GraphQLSchema {
  const extended = extendSchema(schema, parse(`${apps.typeDefs}\n${typeDefs}`));
  for (const [typeName, fields] of [...Object.entries(apps.resolvers), ...Object.entries(resolvers)]) {
    const type = extended.getType(typeName);
    if (!isObjectType(type)) throw new Error(`no type ${typeName}`);
    for (const [name, resolve] of Object.entries(fields)) {
      const field = type.getFields()[name];
      if (field === undefined) throw new Error(`no field ${typeName}.${name}`);
      field.resolve = resolve;
    }
  }
  return extended;
}
