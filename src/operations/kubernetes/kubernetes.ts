// POST /api/v2/kubernetes/nodes, /pods and /pods/overview. The agent that feeds the original API reports once a
// minute, so an answer is a row per node or pod and full minute; over longer ranges the interval depends on the
// length of the range alone, so that equal requests are answered on equal grids.
import * as z from "zod";
import { createMissingPartError, Refused } from "../../core/errors.ts";
import { type Buckets, podPhases } from "../../core/rows.ts";
import {
  earlier,
  fromMillis,
  hour,
  type Instant,
  type Millis,
  minute,
  printMillis,
  toMillis,
} from "../../core/time.ts";
import type { KubernetesStore, SnapshotQuery } from "../../store/kubernetes.ts";
import { type Context, type Operation, type RowBatch, rowsPerChunk } from "../runtime/operation.ts";
import {
  checkRange,
  exampleRange,
  from,
  keyword,
  optional,
  type RequestTime,
  siteId,
  textList,
  to,
} from "../runtime/request-body.ts";
import { nodesRow, podOverviewRow, podsRow } from "./schema.ts";

/** An empty text filters as little as an absent one. */
const name = optional(z.string()).transform((text) => (text === "" ? undefined : text));
const names = optional(textList()).transform((list) => list ?? []);
/** zod shows nothing of what is preprocessed; the wire takes what rows have. */
const state = z
  .preprocess((value) => (value === "" ? undefined : value), optional(keyword(...podPhases)))
  .meta({ anyOf: [{ $ref: "#/$defs/PodState" }, { type: "null" }] });

const scope = { site_id: siteId, from, to };
const namespaces = names.meta({
  description: "Any of these Kubernetes namespaces; absent or empty is all.",
  examples: [["default"]],
});
type RequestRange = { readonly from: RequestTime; readonly to: RequestTime };

const nodesBody = z
  .object({
    ...scope,
    node_name: name.meta({ description: "One node; absent or empty is all.", examples: ["node-1"] }),
  })
  .check(checkRange)
  .meta({ examples: [exampleRange] });
const podsBody = z
  .object({
    ...scope,
    namespaces,
    pod_name: name.meta({ description: "One pod; absent or empty is all.", examples: ["shop-web-7"] }),
    node_names: names.meta({
      description: "On any of these nodes; absent or empty is all.",
      examples: [["node-1"]],
    }),
    state: state.meta({ description: "One state only; null is any.", examples: ["Running"] }),
  })
  .check(checkRange)
  .meta({ examples: [exampleRange, { ...exampleRange, namespaces: [], state: "Failed" }] });
const overviewBody = z
  .object({
    ...scope,
    namespaces,
    query: optional(z.string()).meta({
      description: "Part of a pod's, namespace's, node's or owner's name, in any case, or `label=value`.",
      examples: ["web"],
    }),
  })
  .check(checkRange)
  .meta({ examples: [{ ...exampleRange, query: "web" }] });
type NodesRequest = z.output<typeof nodesBody>;
type PodsRequest = z.output<typeof podsBody>;
type OverviewRequest = z.output<typeof overviewBody>;

export const nodes: Operation<NodesRequest, never> = {
  name: "kubernetes.nodes",
  method: "POST",
  path: "/api/v2/kubernetes/nodes",
  access: "token",
  scope: "kubernetes",
  summary: "Nodes at each snapshot",
  description:
    "A row for each node at each snapshot, by time, then name. The interval of snapshots depends on the range alone: a minute up to 3 hours, then 5, 10, 15 and 60 minutes.",
  request: nodesBody,
  answer: z.array(nodesRow),
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  run: (request, context) =>
    readSnapshotRows(request, context, (store, query) =>
      store.nodes({ ...query, node: request.node_name }, context.signal),
    ),
};

export const pods: Operation<PodsRequest, never> = {
  name: "kubernetes.pods",
  method: "POST",
  path: "/api/v2/kubernetes/pods",
  access: "token",
  scope: "kubernetes",
  summary: "Pods at each snapshot",
  description:
    "A row for each pod at each snapshot, by time, then namespace, then name. Of pods that replaced each other under one name, the newest.",
  request: podsBody,
  answer: z.array(podsRow),
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  run: (request, context) => {
    const { namespaces, pod_name: pod, node_names, state } = request;
    const filter = { namespaces, pods: pod === undefined ? [] : [pod], nodes: node_names, state };
    return readSnapshotRows(request, context, (store, query) =>
      store.pods({ ...query, ...filter }, context.signal),
    );
  },
};

export const podsOverview: Operation<OverviewRequest, never> = {
  name: "kubernetes.pods.overview",
  method: "POST",
  path: "/api/v2/kubernetes/pods/overview",
  access: "token",
  scope: "kubernetes",
  summary: "Pods seen in a range",
  description:
    "One row for each pod that was there at any time of the range, as it was at `to` (now, where that is still to come), else at the last full minute that has it.",
  request: overviewBody,
  answer: z.array(podOverviewRow),
  sites: (request) => [request.site_id],
  mayBePartial: () => true,
  run: async function* (request, context) {
    const { namespaces, query: text = "" } = request;
    const { store, match } = findKubernetesPart(request, context);
    const now = context.now();
    if (request.from.instant > now) return;
    const from = toMillis((request.from.instant + 999_999n) as Instant);
    const to = toMillis(earlier(request.to.instant, now));
    checkSnapshots(Math.ceil((to - from) / minute));
    const query = { match, from, to, rowLimit: context.limits.rows, namespaces, text };
    yield* printSnapshotRows(store.overview(query, context.signal));
  },
};

async function* readSnapshotRows<Row extends { readonly timestamp: Millis }>(
  request: RequestRange & { readonly site_id: string },
  context: Context,
  read: (store: KubernetesStore, query: SnapshotQuery) => AsyncIterable<readonly Row[]>,
): AsyncGenerator<RowBatch> {
  const { store, match } = findKubernetesPart(request, context);
  const snapshots = computeSnapshots(request, context.now());
  if (snapshots === undefined) return;
  checkSnapshots(snapshots.count);
  yield* printSnapshotRows(read(store, { match, snapshots, rowLimit: context.limits.rows }));
}

function findKubernetesPart({ site_id }: { readonly site_id: string }, { sites }: Context) {
  const part = sites.get(site_id)?.kubernetes;
  if (part !== undefined) return part;
  throw createMissingPartError("kubernetes", "The site has no Kubernetes part");
}

function checkSnapshots(count: number): void {
  if (count <= maxSnapshots) return;
  const message = `The range has more than ${maxSnapshots} snapshots; narrow it`;
  throw new Refused("result_too_large", message, { limit: maxSnapshots, wanted: count });
}

/** The interval of ranges up to a length; that of longer ones is an hour. */
const intervals: readonly (readonly [length: Millis, interval: Millis])[] = [
  [3 * hour, minute],
  [12 * hour, 5 * minute],
  [24 * hour, 10 * minute],
  [48 * hour, 15 * minute],
];

/** A century of hours, two years of minutes: over this, not even counting rows is begun. */
const maxSnapshots = 1_000_000;

/**
 * The multiples of the interval within the range; undefined when it holds none, as `12:00:10` to `12:00:50` does. None is
 * after `now`: a source would show its newest samples again, under times that are still to come.
 */
export function computeSnapshots({ from, to }: RequestRange, now: Instant): Buckets | undefined {
  const length = to.instant - from.instant;
  const step = intervals.find(([longest]) => length <= fromMillis(longest))?.[1] ?? hour;
  const start = Math.ceil(toMillis((from.instant + 999_999n) as Instant) / step) * step;
  const count = Math.floor((toMillis(earlier(to.instant, now)) - start) / step) + 1;
  return count > 0 ? { start, step, count } : undefined;
}

async function* printSnapshotRows<Row extends { readonly timestamp: Millis }>(
  batches: AsyncIterable<readonly Row[]>,
): AsyncGenerator<RowBatch> {
  // Rows of one snapshot share its text.
  let moment: Millis | undefined;
  let timestamp = "";
  for await (const batch of batches) {
    for (let first = 0; first < batch.length; first += rowsPerChunk) {
      const rows = batch.slice(first, first + rowsPerChunk);
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
