// What `check` and the start of a server tell of the names under `sites.<id>.metrics.names`: whether the source has what they
// stand for, and what they take away.
import type { MetricAlias, MetricAliases } from "../../config/metric-aliases.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import type { ForcedLabels, MetricStore } from "../../store/metrics.ts";

/** Requests of one inspection that are under way. */
const concurrency = 8;

/** Returns the limitations, in the order of the names. `store` has the metrics as the source calls them. @throws {BackendError} */
export async function inspectMetricAliases(
  store: MetricStore,
  forced: ForcedLabels,
  aliases: MetricAliases,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const stored = new Set(await store.names(forced, signal));
  const firstNames = new Map<string, string>();
  const rivals = new Map<string, string>();
  for (const [name, { metric, match }] of Object.entries(aliases)) {
    const meaning = JSON.stringify([metric, Object.entries(match).sort()]);
    const rival = firstNames.get(meaning);
    if (rival === undefined) firstNames.set(meaning, name);
    else rivals.set(name, rival);
  }
  const inspectAlias = async ([name, alias]: [string, MetricAlias], signal: AbortSignal) => {
    const rival = rivals.get(name);
    return [
      ...(rival === undefined
        ? []
        : [`names.${name}: ${rival} is a name of the same metric, ${alias.metric}`]),
      ...(stored.has(name) && alias.metric !== name
        ? [`names.${name}: hides the metric that the source calls ${name}`]
        : []),
      ...(await inspectTags(store, { ...forced, ...alias.match }, name, alias, signal)),
    ];
  };
  return (await mapConcurrent(Object.entries(aliases), concurrency, inspectAlias, signal)).flat();
}

async function inspectTags(
  store: MetricStore,
  forced: ForcedLabels,
  name: string,
  { metric, tags, match }: MetricAlias,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const combinations = await store.tagKeys(forced, metric, signal);
  if (combinations === undefined) {
    const labels = Object.keys(match).length === 0 ? "" : " with the labels of its match";
    return [`names.${name}: the source has no ${metric}${labels}`];
  }
  const labels = new Set(combinations.flat());
  return Object.entries(tags).flatMap(([key, label]) => [
    ...(labels.has(label)
      ? []
      : [`names.${name}.tags.${key}: no series of ${metric} has the label ${label}`]),
    ...(labels.has(key) && key !== label && !Object.values(tags).includes(key)
      ? [`names.${name}.tags.${key}: hides the label ${key} of ${metric}`]
      : []),
  ]);
}
