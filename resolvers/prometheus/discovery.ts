// What a Prometheus holds, for `readout init`: how many metrics, which labels of targets part them, and which Kubernetes
// clusters it watches. Labels are read off `up`, which every scraped target has, so that nothing else is looked through.

import type { Millis } from "../../src/core/time.ts";
import type { Match, Survey } from "../../src/store/store.ts";
import type { Door } from "./client/client.ts";
import { aggregate, call, type Expression, equal, metricName, select } from "./client/promql.ts";
import type { Fold, Labels } from "./client/response-scanner.ts";
import { inspectCluster } from "./kubernetes/coverage.ts";
import type { Families } from "./metrics/metric-families.ts";

/** Labels that usually tell tenants, environments, clusters and teams apart, in the order in which they are proposed. */
const walls = ["site", "tenant", "environment", "env", "cluster", "namespace", "job"] as const;
/** A target that was scraped within this is there. */
const fresh: Millis = 300_000;

/** @throws {BackendError} */
export async function surveyMetrics(
  door: Door,
  families: Pick<Families, "inspect">,
  now: Millis,
  signal: AbortSignal,
): Promise<Survey> {
  const everything: Match = {};
  const groups = (name: string, labels: readonly string[]): Promise<readonly Labels[]> =>
    door.query(newest(name, labels), { at: now }, labelSets, signal);
  const [metrics, targets, pods] = await Promise.all([
    families.inspect(everything, signal),
    groups("up", walls),
    groups("kube_pod_info", ["cluster"]),
  ]);
  const labels = new Map(
    walls.flatMap((label) => {
      const values = [...new Set(targets.flatMap((target) => target[label] ?? []))].filter(
        (value) => value !== "",
      );
      return values.length === 0 ? [] : [[label, values.sort()] as const];
    }),
  );
  // A cluster without a name stands behind no wall, and only if it is the only one.
  const names = [...new Set(pods.map(({ cluster = "" }) => cluster))].sort();
  const matches =
    names.length === 1 && names[0] === ""
      ? [everything]
      : names.filter((name) => name !== "").map((cluster) => ({ cluster }));
  const kubernetes = await Promise.all(
    matches.map(async (match) => ({ match, report: await inspectCluster(door, match, now, signal) })),
  );
  return { logs: [], traces: [], metrics, labels, kubernetes, notes: [] };
}

function newest(name: string, labels: readonly string[]): Expression {
  const selector = select({}, [equal(metricName, name)]);
  const window = { kind: "window", of: selector, length: fresh, offset: 0 } as const;
  return aggregate("group", labels, call("last_over_time", window));
}

function labelSets(): Fold<readonly Labels[]> {
  const found: Labels[] = [];
  return { series: ({ labels }) => void found.push(labels), result: () => found };
}
