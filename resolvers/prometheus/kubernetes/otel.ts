// OpenTelemetry's kubelet metrics. How their names arrive depends on the exporter and on settings of the server: with dots
// or underscores, with or without the unit, and counters with or without `_total`. Labels have dots or underscores too.
// One query finds the spellings that are there. Others then ask for these only, so that labels with dots, which servers
// without UTF-8 names refuse, are only sent to a server that has such names.
import { visitInTurns } from "../../../src/core/async/turns.ts";
import { requireFirst } from "../../../src/core/collections.ts";
import type { Millis } from "../../../src/core/time.ts";
import { aggregate, binary, type Expression, matchPresent, metricName } from "../client/promql.ts";
import type { Labels } from "../client/response-scanner.ts";
import { readLabel } from "../counters/series-reader.ts";
import {
  nodeDisks,
  nodeFigures,
  nodeNetwork,
  otelPodNetwork,
  podNetwork,
  podSources,
} from "./metric-sources.ts";
import {
  buildRestartQuery,
  type InterfaceOwner,
  listInterfaceLabels,
  listNetworkMetrics,
  type MetricSpelling,
  spellLabel,
} from "./network-queries.ts";
import {
  buildNewestOf,
  deduplicate,
  isOtelMetric,
  matchPods,
  otelLabels,
  type PodLabels,
  type PodScope,
  physicalInterface,
  type QueryScope,
} from "./selectors.ts";
import type { SnapshotSeries } from "./snapshot-series.ts";

/** What exporters append to a name, by the end of the name. The longest suffix is the specification's. */
const suffixes: readonly (readonly [ending: RegExp, suffixes: readonly string[]])[] = [
  [/\.cpu\.time$/, ["_seconds_total", "_seconds", "_total", ""]],
  [/\.cpu\.usage$/, [""]],
  // Of unit 1, which exporters call a ratio even if it is none.
  [/\.cpu\.utilization$/, ["_ratio", ""]],
  [/\.(?:major_)?page_faults$/, ["_ratio", "_total", ""]],
  [/\.inode\.(?:count|free)$/, ["_ratio", ""]],
  [/\.network\.io$/, ["_bytes_total", "_bytes", "_total", ""]],
  [/^/, ["_bytes", ""]],
];

/** Every name under which a metric may be exported. */
function listOtelNames(metric: string): readonly string[] {
  const own = suffixes.find(([ending]) => ending.test(metric))?.[1] ?? [""];
  return [metric.replaceAll(".", "_"), metric].flatMap((base) => own.map((suffix) => `${base}${suffix}`));
}

const podMetrics: readonly string[] = deduplicate([
  ...podSources.map(({ metric }) => metric),
  ...listNetworkMetrics(podNetwork),
]).filter(isOtelMetric);

const nodeMetrics: readonly string[] = deduplicate([
  ...Object.values(nodeFigures).flatMap((sources) => sources.map(({ metric }) => metric)),
  ...nodeDisks.flatMap((disk) => Object.values(disk)),
  ...listNetworkMetrics(nodeNetwork),
]).filter(isOtelMetric);

/** A pod may have the capacity of its node's disk. */
const diskCapacities: readonly string[] = nodeDisks.map(({ capacity }) => capacity).filter(isOtelMetric);

const metricsByOwner: Readonly<Record<InterfaceOwner, readonly string[]>> = {
  pods: [...podMetrics, ...diskCapacities],
  nodes: nodeMetrics,
};

/** OpenTelemetry's own name by each exported name. */
const metricByName: ReadonlyMap<string, string> = new Map(
  [...podMetrics, ...nodeMetrics].flatMap((metric) => listOtelNames(metric).map((name) => [name, metric])),
);

/** One series for each exported name that is there. */
export function buildOtelNamesQuery(cluster: QueryScope, owner: InterfaceOwner): Expression {
  const names = metricsByOwner[owner].flatMap(listOtelNames);
  return aggregate("group", [metricName], buildNewestOf(cluster, names, [], []));
}

/** The spellings to ask for: names with dots may have labels of either kind. */
export function listOtelSpellings(names: Iterable<string>): readonly MetricSpelling[] {
  return [...names].flatMap((name) => {
    const metric = metricByName.get(name);
    if (metric === undefined) return [];
    const plain: MetricSpelling = { name, metric, hasDottedLabels: false };
    return name.includes(".") ? [plain, { ...plain, hasDottedLabels: true }] : [plain];
  });
}

export function readOtelNames(answer: readonly SnapshotSeries[]): readonly string[] {
  return answer.map(({ labels }) => readLabel(labels, metricName));
}

export type OtelPodQueryName = "otelValues" | "otelInterfaces" | "otelRestarts" | "otelDisks";

/** What pods use, by the spellings that are there; `undefined` without any. */
export function buildOtelPodQueries(
  cluster: QueryScope,
  scope: PodScope,
  step: Millis,
  spellings: readonly MetricSpelling[],
): Readonly<Record<OtelPodQueryName, Expression | undefined>> {
  const network = spellings.filter(({ metric }) => metric === otelPodNetwork);
  const disks = spellings.filter(({ metric }) => diskCapacities.includes(metric));
  const values = spellings.filter((spelling) => !network.includes(spelling) && !disks.includes(spelling));
  const podLabels = [otelLabels.namespace, otelLabels.pod, "k8s_pod_uid"];
  return {
    otelValues: combineDialects(values, (names, spell) =>
      buildNewestOf(cluster, names, podLabels.map(spell), matchPods(scope, spellPodLabels(spell))),
    ),
    otelInterfaces: combineDialects(network, (names, spell) =>
      buildNewestOf(cluster, names, listInterfaceLabels("pods", otelPodNetwork).slice(1).map(spell), [
        physicalInterface,
        ...matchPods(scope, spellPodLabels(spell)),
      ]),
    ),
    otelRestarts: buildRestartQuery(cluster, "pods", network, step, scope),
    otelDisks: combineDialects(disks, (names, spell) => buildNodeQuery(cluster, names, spell)),
  };
}

/** The state and usage of nodes, by the spellings that are there; `undefined` without any. */
export function buildOtelNodeQuery(
  cluster: QueryScope,
  spellings: readonly MetricSpelling[],
): Expression | undefined {
  return combineDialects(spellings, (names, spell) => buildNodeQuery(cluster, names, spell));
}

/** The number of nodes, in two expressions if labels have two spellings. */
export function buildOtelNodeCounts(
  cluster: QueryScope,
  spellings: readonly MetricSpelling[],
): readonly Expression[] {
  return listDialects(spellings).map(({ names, spell }) => {
    const nodes = buildNewestOf(
      cluster,
      names,
      [spell("k8s_node_name")],
      [matchPresent(spell("k8s_node_name"))],
    );
    return aggregate("count", [], aggregate("group", [spell("k8s_node_name")], nodes));
  });
}

/** For each exported name the number of pods or nodes that have it, in two expressions if labels have two spellings. */
export function buildOtelCoverageQueries(
  cluster: QueryScope,
  spellings: readonly MetricSpelling[],
): readonly Expression[] {
  const own = [otelLabels.namespace, otelLabels.pod, "k8s_node_name"];
  return listDialects(spellings).map(({ names, spell }) =>
    aggregate("count", [metricName], buildNewestOf(cluster, names, own.map(spell), [])),
  );
}

/** The series by OpenTelemetry's own names, with underscores in labels, whatever they are exported as. */
export async function normaliseOtelLabels<Series extends { readonly labels: Labels }>(
  series: readonly Series[],
  signal: AbortSignal,
): Promise<readonly Series[]> {
  const all: Series[] = [];
  await visitInTurns(series, (one) => all.push({ ...one, labels: normaliseLabels(one.labels) }), signal);
  return all;
}

function normaliseLabels(labels: Labels): Labels {
  return Object.fromEntries(
    Object.entries(labels).map(([label, value]) =>
      label === metricName
        ? [label, metricByName.get(value) ?? value]
        : [label.startsWith("k8s.") ? label.replaceAll(".", "_") : label, value],
    ),
  );
}

// ---- Spellings of labels ---------------------------------------------------------------------------------------

type SpellLabel = (label: string) => string;

interface Dialect {
  readonly names: readonly string[];
  readonly spell: SpellLabel;
}

function listDialects(spellings: readonly MetricSpelling[]): readonly Dialect[] {
  return [...Map.groupBy(spellings, ({ hasDottedLabels }) => hasDottedLabels).values()].map((ofDialect) => ({
    names: ofDialect.map(({ name }) => name),
    spell: (label) => spellLabel(requireFirst(ofDialect), label),
  }));
}

/** One expression for both spellings of labels. Every series has one of the labels, so that none hides another. */
function combineDialects(
  spellings: readonly MetricSpelling[],
  build: (names: readonly string[], spell: SpellLabel) => Expression,
): Expression | undefined {
  const [first, second] = listDialects(spellings).map(({ names, spell }) => build(names, spell));
  return first === undefined || second === undefined ? first : binary(first, "or", second);
}

function spellPodLabels(spell: SpellLabel): PodLabels {
  return { namespace: spell(otelLabels.namespace), pod: spell(otelLabels.pod) };
}

function buildNodeQuery(cluster: QueryScope, names: readonly string[], spell: SpellLabel): Expression {
  const by = ["k8s_node_name", "interface", "direction"].map(spell);
  return buildNewestOf(cluster, names, by, [physicalInterface, matchPresent(spell("k8s_node_name"))]);
}
