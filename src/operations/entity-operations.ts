// What other subgraphs know by its key alone: lines, pods and deploys, many of one site read in one request to the source. They run as
// links do, with the same sites, scope, deadline and limits.
import { reportRead } from "../core/async/read-progress.ts";
import type { LogLine } from "../core/rows.ts";
import { earlier, endOfMilli, floorToMilli, type Instant, later, minute } from "../core/time.ts";
import {
  prepareLink,
  type Row,
  readLinkedLines,
  readLinkedPods,
  shiftInstant,
  toLineRow,
  toSnapshotTime,
} from "./link-operations.ts";
import { computeTieLimit } from "./logs/lines.ts";
import type { Context, PreparedOperation } from "./runtime/operation.ts";
import { readDeployStats } from "./traces/deploys.ts";

/** A log line by its key; of its time only the millisecond counts, as lines are answered with no more of it. */
interface LineKey {
  readonly source: string;
  readonly time: Instant;
  readonly id: string;
}

/** For each key its line alone, or none, as where the site does not have the source. */
export function prepareLinesByKey(
  site: string,
  keys: readonly LineKey[],
): PreparedOperation<Promise<readonly (readonly unknown[])[]>> {
  return prepareLink("logs", site, async (context) => {
    const { logs } = context.sites.get(site) ?? {};
    const [source, ...others] = new Set(keys.flatMap((key) => logs?.sources.get(key.source) ?? []));
    const [moment, ...moments] = new Set(keys.map(({ time }) => floorToMilli(time)));
    if (logs === undefined || source === undefined || moment === undefined) return keys.map(() => []);
    const { documents: documentLimit } = context.limits;
    const query = {
      sources: [source, ...others] as const,
      range: { from: moments.reduce(earlier, moment), to: endOfMilli(moments.reduce(later, moment)) },
      moments: [moment, ...moments] as const,
      ...({ filter: { kind: "all" }, order: "asc", expectedLines: keys.length } as const),
      documentLimit,
      tieLimit: computeTieLimit(context.limits),
      held: context.held,
      progressed: (documents: number) => reportRead(context.progress, documents, "documents"),
    };
    const wanted = new Set(keys.map(formatLineKey));
    const found = new Map<string, readonly unknown[]>();
    for await (const batch of logs.store.lines(query, context.signal)) {
      for (const line of batch) {
        const key = formatLineKey(toLineKey(line));
        if (wanted.has(key)) found.set(key, [toLineRow(line)]);
      }
    }
    return keys.map((key) => found.get(formatLineKey(key)) ?? []);
  });
}

function toLineKey({ source_id: source, time, id }: LogLine): LineKey {
  return { source, time, id };
}

function formatLineKey({ source, time, id }: LineKey): string {
  return `${floorToMilli(time)} ${JSON.stringify([source, id])}`;
}

interface PodNames {
  readonly pod: string;
  readonly namespace: string;
}

/** For each pod its row at the last full minute alone, or none; null where the site has no Kubernetes part. */
export function preparePodsNow(
  site: string,
  pods: readonly PodNames[],
): PreparedOperation<Promise<readonly (readonly Row[] | null)[]>> {
  return prepareLink("kubernetes", site, (context) => {
    const at = toSnapshotTime(context.now());
    const questions = pods.map((names) => ({ ...names, from: at, to: at }));
    return readLinkedPods(site, questions, context);
  });
}

/** For each revision its figures of the retention alone, or none, as where the site has no traces. */
export function prepareDeploys(
  site: string,
  revisions: readonly string[],
): PreparedOperation<Promise<readonly (readonly object[])[]>> {
  const run = async (context: Context) => {
    if (context.sites.get(site)?.traces === undefined) return revisions.map(() => []);
    const found = await readDeployStats(site, revisions, context);
    return found.map((stats) => (stats === undefined ? [] : [stats]));
  };
  return { name: "deploys", scopes: ["deploys"], sites: () => [site], run };
}

/** The newest lines of each pod, of so many minutes up to now; null where the site has no logs. */
export function preparePodLines(
  site: string,
  minutes: number,
  limit: number,
  pods: readonly PodNames[],
): PreparedOperation<Promise<readonly unknown[]>> {
  return prepareLink("logs", site, (context) => {
    const to = context.now();
    const from = shiftInstant(to, -minutes * minute);
    const questions = pods.map(({ pod: id, namespace }) => ({ id, namespace, from, to, limit }));
    return readLinkedLines(site, "pod", "desc", questions, context);
  });
}
