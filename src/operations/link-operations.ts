// What links ask for: the rows that belong to many others, read in one request to a source. They are no routes, but
// they run as operations do, with the same sites, deadline and limits, and their rows are those of the routes.

import { reportRead } from "../core/async/read-progress.ts";
import { Refused } from "../core/errors.ts";
import { parseJson } from "../core/json/parse-json.ts";
import type { LogLine, PodsRow } from "../core/rows.ts";
import {
  earlier,
  fromMillis,
  hour,
  type Instant,
  later,
  type Millis,
  minute,
  printInstantToMilli,
  printMillis,
  toMillis,
} from "../core/time.ts";
import type { Filter, Path, SourceSpan } from "../log-query/ast.ts";
import type { KubernetesStore, SnapshotQuery } from "../store/kubernetes.ts";
import type { LogSource } from "../store/logs.ts";
import { listIdSpellings, normaliseId } from "../tracing/spans/span-ids.ts";
import { printLine } from "./logs/lines.ts";
import { answerByTime } from "./nearby-questions.ts";
import { readRows } from "./runtime/collected-rows.ts";
import type { Context, PreparedOperation } from "./runtime/operation.ts";

/** A row as it is answered. */
export type Row = Readonly<Record<string, unknown>>;

/** The names of a site's metrics; null where it has none configured. */
export function prepareLinkedMetricNames(site: string): PreparedOperation<Promise<unknown>> {
  return prepareLink("metrics", site, async ({ sites, signal }) => {
    const { metrics } = sites.get(site) ?? {};
    return metrics === undefined ? null : await metrics.store.names(metrics.match, signal);
  });
}

// ---- Log lines ----------------------------------------------------------------------------------------------

/** Where a line says something: paths into its body, by the layouts of lines. */
export const subjectPaths = {
  trace: [["trace_id"], ["trace", "id"]],
  pod: [
    ["k8s.pod.name"],
    ["k8s", "pod", "name"],
    ["kubernetes", "pod", "name"],
    ["kubernetes", "pod_name"],
    ["resource", "k8s.pod.name"],
    ["resource", "k8s", "pod", "name"],
    ["Resource", "k8s", "pod", "name"],
    ["resource", "attributes", "k8s.pod.name"],
    ["resource", "attributes.k8s@pod@name"],
  ],
} as const satisfies Readonly<Record<string, readonly [Path, Path, ...Path[]]>>;
type LinkSubject = keyof typeof subjectPaths;
/** Where a line says which Kubernetes namespace its pod is in. */
export const namespacePaths: readonly Path[] = [
  ["k8s.namespace.name"],
  ["k8s", "namespace", "name"],
  ["kubernetes", "namespace"],
  ["kubernetes", "namespace_name"],
  ["kubernetes", "pod_namespace"],
  ["resource", "k8s.namespace.name"],
  ["resource", "k8s", "namespace", "name"],
  ["Resource", "k8s", "namespace", "name"],
  ["resource", "attributes", "k8s.namespace.name"],
  ["resource", "attributes.k8s@namespace@name"],
];

/** What a line says it belongs to. Many shippers write the name of a pod without its namespace. */
interface LineSubject {
  readonly id: string;
  readonly namespace?: string | undefined;
}

/** By the first place that says it; undefined where none does. */
export function readSubject(subject: LinkSubject, json: unknown): LineSubject | undefined {
  let body: unknown;
  try {
    body = parseJson(String(json));
  } catch {
    return undefined;
  }
  const id = readFirstText(body, subjectPaths[subject]);
  if (id === undefined) return undefined;
  return subject === "pod" ? { id, namespace: readFirstText(body, namespacePaths) } : { id };
}

function readFirstText(body: unknown, paths: readonly Path[]): string | undefined {
  for (const path of paths) {
    let value: unknown = body;
    for (const key of path) {
      value =
        typeof value === "object" && value !== null && Object.hasOwn(value, key)
          ? Reflect.get(value, key)
          : undefined;
    }
    if (typeof value === "string" && value !== "") return value;
  }
  return undefined;
}

/**
 * The lines that say they belong to `id` within a range, at most `limit` of them, in the order of all. With a namespace, those
 * that state another one are left out, and those that state none stay.
 */
interface LinkedLinesQuery extends LineSubject {
  readonly from: Instant;
  readonly to: Instant;
  readonly limit: number;
}

/** The lines for each question; null where the site has no logs. All its sources are searched. */
export function prepareLinkedLines(
  site: string,
  subject: LinkSubject,
  order: "asc" | "desc",
  questions: readonly LinkedLinesQuery[],
): PreparedOperation<Promise<unknown>> {
  return prepareLink("logs", site, (context) => readLinkedLines(site, subject, order, questions, context));
}

export async function readLinkedLines(
  site: string,
  subject: LinkSubject,
  order: "asc" | "desc",
  questions: readonly LinkedLinesQuery[],
  context: Context,
): Promise<readonly unknown[]> {
  const { logs } = context.sites.get(site) ?? {};
  const [source, ...others] = [...(logs?.sources.values() ?? [])];
  if (logs === undefined || source === undefined) return questions.map(() => null);
  const sources: readonly [LogSource, ...LogSource[]] = [source, ...others];
  const { documents: documentLimit, linesPerMillisecond, rows } = context.limits;
  const budget = { documents: 0 };
  const read = async (group: readonly LinkedLinesQuery[], signal: AbortSignal) => {
    const query = {
      sources,
      range: {
        from: group.map(({ from }) => from).reduce(earlier),
        to: group.map(({ to }) => to).reduce(later),
      },
      filter: buildSubjectFilter(subject, group),
      order,
      expectedLines: group.reduce((sum, { limit }) => sum + limit, 0),
      documentLimit,
      budget,
      tieLimit: linesPerMillisecond,
      held: context.held,
      progressed: (documents: number) => reportRead(context.progress, documents, "documents"),
    };
    const found = await collectLines(logs.store.lines(query, signal), subject, group, rows);
    const rowOf = cacheByKey(toLineRow);
    return group.map((question) => found.rowsOf(question).map(rowOf));
  };
  // The id of a trace finds its few lines in any range. A pod writes lines at all times.
  if (subject === "trace") return read(questions, context.signal);
  const stretchOf = ({ from, to }: LinkedLinesQuery) => ({ from: toMillis(from), to: toMillis(to) });
  return answerByTime(questions, { stretchOf, reach: 10 * minute, read }, context.signal);
}

/** The line as REST answers it. */
export function toLineRow(line: LogLine): unknown {
  return readRows(printLine(line, printInstantToMilli(line.time)))[0];
}

/** The one spelling in which identifiers are compared: each writer of lines has its own for the id of a trace. */
const toComparable = (subject: LinkSubject, id: string) => (subject === "trace" ? normaliseId(id, 32) : id);

/** What lines that belong to one of the identifiers say. As a text it could be longer than the language allows. */
function buildSubjectFilter(subject: LinkSubject, questions: readonly LinkedLinesQuery[]): Filter {
  const ids = questions.flatMap(({ id }) =>
    subject === "trace" ? [id, ...listIdSpellings(normaliseId(id, 32))] : id,
  );
  const [first, second, ...others] = [...new Set(ids)].flatMap((value) =>
    subjectPaths[subject].map(
      (path): Filter => ({
        kind: "compare",
        field: { kind: "json", path },
        operator: "=",
        value,
        span: nowhere,
      }),
    ),
  );
  if (first === undefined || second === undefined) throw new Error("no identifier to look for");
  return { kind: "or", operands: [first, second, ...others], span: nowhere };
}

const nowhere: SourceSpan = { start: 0, end: 0 };

/** The lines that answer the questions. @throws {Refused} More than `rowLimit` lines were read for them. */
async function collectLines(
  batches: AsyncIterable<readonly LogLine[]>,
  subject: LinkSubject,
  questions: readonly LinkedLinesQuery[],
  rowLimit: number,
): Promise<Collected<LinkedLinesQuery, LogLine>> {
  const byId = Map.groupBy(questions, ({ id }) => toComparable(subject, id));
  const found = collectPerAsker<LinkedLinesQuery, LogLine>(questions, ({ limit }) => limit);
  let read = 0;
  for await (const batch of batches) {
    for (const line of batch) {
      const asking = listAsking(byId, subject, line.json);
      if (asking.length === 0) continue;
      read += 1;
      if (read > rowLimit) throw createTooManyLinesError(rowLimit);
      for (const question of asking) {
        if (line.time >= question.from && line.time <= question.to) found.add(question, line);
      }
      if (found.isComplete()) return found;
    }
  }
  return found;
}

/** The questions that a line with this body may answer: it states no other namespace than they do. */
function listAsking(
  byId: ReadonlyMap<string, readonly LinkedLinesQuery[]>,
  subject: LinkSubject,
  json: unknown,
): readonly LinkedLinesQuery[] {
  const { id = "", namespace: own } = readSubject(subject, json) ?? {};
  const asking = byId.get(toComparable(subject, id)) ?? [];
  return own === undefined ? asking : asking.filter(({ namespace = own }) => namespace === own);
}

// ---- Pods ---------------------------------------------------------------------------------------------------

/** A pod over the snapshots, one a minute, from the first to the last; without a namespace, any pod of that name. */
interface LinkedPodQuery {
  readonly pod: string;
  readonly namespace?: string | undefined;
  readonly from: Millis;
  readonly to: Millis;
}

/** The rows for each question, oldest first; null where the site has no Kubernetes part. */
export function prepareLinkedPods(
  site: string,
  questions: readonly LinkedPodQuery[],
): PreparedOperation<Promise<unknown>> {
  return prepareLink("kubernetes", site, (context) => readLinkedPods(site, questions, context));
}

export async function readLinkedPods(
  site: string,
  questions: readonly LinkedPodQuery[],
  context: Context,
): Promise<readonly (readonly Row[] | null)[]> {
  const part = context.sites.get(site)?.kubernetes;
  if (part === undefined) return questions.map(() => null);
  return answerByTime(
    questions,
    {
      stretchOf: (question) => question,
      // Few rows are read in vain, and each reading takes dozens of queries.
      reach: hour,
      read: (group, signal) => readPodGroup(part, group, context.limits.rows, signal),
    },
    context.signal,
  );
}

async function readPodGroup(
  { store, match }: Pick<SnapshotQuery, "match"> & { readonly store: KubernetesStore },
  questions: readonly LinkedPodQuery[],
  rowLimit: number,
  signal: AbortSignal,
): Promise<readonly (readonly Row[])[]> {
  const start = Math.min(...questions.map(({ from }) => from));
  const end = Math.max(...questions.map(({ to }) => to));
  const namespaces = questions.map(({ namespace }) => namespace).filter((one) => one !== undefined);
  const query = {
    match,
    snapshots: { start, step: minute, count: (end - start) / minute + 1 },
    rowLimit,
    namespaces: namespaces.length === questions.length ? [...new Set(namespaces)] : [],
    pods: [...new Set(questions.map(({ pod }) => pod))],
    nodes: [],
  };
  const rows: PodsRow[] = [];
  for await (const batch of store.pods(query, signal)) for (const row of batch) rows.push(row);
  const byPod = Map.groupBy(rows, ({ pod_name }) => pod_name);
  const rowOf = cacheByKey((row: PodsRow) => ({ ...row, timestamp: printMillis(row.timestamp) }));
  return questions.map(({ pod, namespace, from, to }) =>
    (byPod.get(pod) ?? [])
      .filter(
        (row) =>
          row.timestamp >= from &&
          row.timestamp <= to &&
          (namespace === undefined || row.pod_namespace === namespace),
      )
      .map(rowOf),
  );
}

/** The last full minute at a moment. */
export function toSnapshotTime(moment: Instant): Millis {
  return Math.floor(toMillis(moment) / minute) * minute;
}

export function shiftInstant(moment: Instant, millis: Millis): Instant {
  return (moment + fromMillis(millis)) as Instant;
}

interface Collected<Asker, Row> {
  /** Whether this asker is known and has fewer rows than it asked for. */
  readonly isWaiting: (asker: Asker) => boolean;
  /** Keeps a row for an asker that is still waiting; drops it otherwise. */
  readonly add: (asker: Asker, row: Row) => void;
  /** Whether nobody waits for more rows. */
  readonly isComplete: () => boolean;
  readonly rowsOf: (asker: Asker) => readonly Row[];
}

/** Rows that were read for many at once, the first ones for each of them. */
export function collectPerAsker<Asker, Row>(
  askers: readonly Asker[],
  limitOf: (asker: Asker) => number,
): Collected<Asker, Row> {
  const rows = new Map<Asker, Row[]>(askers.map((asker) => [asker, []]));
  let waiting = rows.size;
  const isWaiting = (asker: Asker) => {
    const own = rows.get(asker);
    return own !== undefined && own.length < limitOf(asker);
  };
  return {
    isWaiting,
    add: (asker, row) => {
      if (!isWaiting(asker)) return;
      rows.get(asker)?.push(row);
      if (!isWaiting(asker)) waiting -= 1;
    },
    isComplete: () => waiting === 0,
    rowsOf: (asker) => rows.get(asker) ?? [],
  };
}

/** Made once for each key: many rows may lead to the same ones, and share them. */
export function cacheByKey<Key, Value>(make: (key: Key) => Value): (key: Key) => Value {
  const made = new Map<Key, Value>();
  return (key) => {
    const known = made.get(key);
    if (known !== undefined) return known;
    const value = make(key);
    made.set(key, value);
    return value;
  };
}

/** The name of a link is the scope that it needs. */
export function prepareLink<Answer>(
  name: "logs" | "tracing" | "metrics" | "kubernetes",
  site: string,
  run: (context: Context) => Promise<Answer>,
): PreparedOperation<Promise<Answer>> {
  return { name, scopes: [name], sites: () => [site], run };
}

function createTooManyLinesError(limit: number) {
  return new Refused("result_too_large", `A link would read more than ${limit} lines; ask for fewer rows`, {
    limit,
  });
}
