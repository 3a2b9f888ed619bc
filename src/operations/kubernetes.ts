// POST /api/v2/kubernetes/nodes, /pods and /pods/overview. The agent that feeds the original API reports once a
// minute, so an answer is a row per node or pod and full minute; over longer ranges the interval depends on the
// length of the range alone, so that equal requests are answered on equal grids.
import * as z from "zod";
import { Refused } from "../errors.ts";
import { type Buckets, podPhases } from "../model.ts";
import type { KubernetesStore, SnapshotQuery } from "../store.ts";
import { fromMillis, type Instant, inclusiveEnd, type Millis, printMillis, toMillis } from "../time.ts";
import type { Context, Operation, Rows } from "./operation.ts";
import { optional, parseRequest, type RequestTime, time, word } from "./request.ts";

/** An empty text filters as little as an absent one. */
const name = optional(z.string()).transform((text) => (text === "" ? undefined : text));
const names = optional(z.array(z.string())).transform((list) => list ?? []);
const state = z.preprocess((value) => (value === "" ? undefined : value), optional(word(...podPhases)));

const scope = { site_id: z.string(), from: time, to: time };
type Range = { readonly from: RequestTime; readonly to: RequestTime };

function checkOrder({ value: { from, to }, issues }: z.core.ParsePayload<Range>): void {
  if (from.instant <= inclusiveEnd(to.text, to.instant)) return;
  issues.push({ code: "custom", path: ["from"], message: "is later than to", input: from.text });
}

const nodesBody = z.object({ ...scope, node_name: name }).check(checkOrder);
const podsBody = z
  .object({ ...scope, namespaces: names, pod_name: name, node_names: names, state })
  .check(checkOrder);
const overviewBody = z.object({ ...scope, namespaces: names, query: optional(z.string()) }).check(checkOrder);
export type NodesRequest = z.output<typeof nodesBody>;
export type PodsRequest = z.output<typeof podsBody>;
export type OverviewRequest = z.output<typeof overviewBody>;

export const nodes: Operation<NodesRequest, never> = {
  name: "kubernetes.nodes",
  method: "POST",
  path: "/api/v2/kubernetes/nodes",
  access: "token",
  parse: (raw) => parseRequest(nodesBody, raw),
  sites: (request) => [request.site_id],
  run: (request, context) =>
    answer(request, context, (store, query) =>
      store.nodes({ ...query, node: request.node_name }, context.signal),
    ),
};

export const pods: Operation<PodsRequest, never> = {
  name: "kubernetes.pods",
  method: "POST",
  path: "/api/v2/kubernetes/pods",
  access: "token",
  parse: (raw) => parseRequest(podsBody, raw),
  sites: (request) => [request.site_id],
  run: (request, context) => {
    const { namespaces, pod_name: pod, node_names, state } = request;
    const filter = { namespaces, pod, nodes: node_names, state };
    return answer(request, context, (store, query) => store.pods({ ...query, ...filter }, context.signal));
  },
};

export const podsOverview: Operation<OverviewRequest, never> = {
  name: "kubernetes.pods.overview",
  method: "POST",
  path: "/api/v2/kubernetes/pods/overview",
  access: "token",
  parse: (raw) => parseRequest(overviewBody, raw),
  sites: (request) => [request.site_id],
  run: (request, context) => {
    const { namespaces, query: text = "" } = request;
    return answer(request, context, (store, query) =>
      store.overview({ ...query, namespaces, text }, context.signal),
    );
  },
};

async function* answer<Row extends { readonly timestamp: Millis }>(
  request: Range & { readonly site_id: string },
  { sites, limits }: Context,
  read: (store: KubernetesStore, query: SnapshotQuery) => AsyncIterable<readonly Row[]>,
): AsyncGenerator<Rows> {
  const part = sites.get(request.site_id)?.kubernetes;
  if (part === undefined) {
    throw new Refused("not_supported_by_backend", "The site has no Kubernetes part", {
      backend: null,
      feature: "kubernetes",
    });
  }
  const snapshots = snapshotsOf(request);
  if (snapshots === undefined) return;
  if (snapshots.count > mostSnapshots) {
    const message = `The range has more than ${mostSnapshots} snapshots; narrow it`;
    throw new Refused("result_too_large", message, { limit: mostSnapshots, wanted: snapshots.count });
  }
  yield* print(read(part.store, { match: part.match, snapshots, rowLimit: limits.rows }));
}

const minute: Millis = 60_000;
const hour = 60 * minute;
/** The interval of ranges up to a length; that of longer ones is an hour. */
const intervals: readonly (readonly [length: Millis, interval: Millis])[] = [
  [3 * hour, minute],
  [12 * hour, 5 * minute],
  [24 * hour, 10 * minute],
  [48 * hour, 15 * minute],
];

/** A century of hours: over this, not even counting rows is begun. */
const mostSnapshots = 1_000_000;

/** The multiples of the interval within the range; undefined when it holds none, as `12:00:10` to `12:00:50` does. */
export function snapshotsOf({ from, to }: Range): Buckets | undefined {
  const length = to.instant - from.instant;
  const step = intervals.find(([longest]) => length <= fromMillis(longest))?.[1] ?? hour;
  const start = Math.ceil(toMillis((from.instant + 999_999n) as Instant) / step) * step;
  const count = Math.floor((toMillis(to.instant) - start) / step) + 1;
  return count > 0 ? { start, step, count } : undefined;
}

/** Rows of one `Rows`: small enough that writing one never holds the event loop up. */
const chunk = 500;

async function* print<Row extends { readonly timestamp: Millis }>(
  batches: AsyncIterable<readonly Row[]>,
): AsyncGenerator<Rows> {
  // Rows of one snapshot share its text.
  let moment: Millis | undefined;
  let timestamp = "";
  for await (const batch of batches) {
    for (let first = 0; first < batch.length; first += chunk) {
      const rows = batch.slice(first, first + chunk);
      const texts = rows.map((row) => {
        if (row.timestamp !== moment) {
          moment = row.timestamp;
          timestamp = printMillis(moment);
        }
        return JSON.stringify({ ...row, timestamp });
      });
      yield { count: rows.length, text: texts.join(",") };
    }
  }
}
