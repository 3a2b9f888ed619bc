// Proposes sites and their parts for the findings of a survey, each with its reason. The same findings always give the
// same proposal.

import type { MetricAliases } from "../../config/metric-aliases.ts";
import { type NonEmpty, requireFirst } from "../../core/collections.ts";
import { areEnvironments } from "../../core/environments.ts";
import type { Instant } from "../../core/time.ts";
import type { FoundSource, Survey } from "../../store/inspection.ts";
import type { ForcedLabels } from "../../store/metrics.ts";
import { hasIndex } from "../support/pattern-lists.ts";
import { printNewest } from "../support/report-text.ts";

/** A backend, and the survey of its data. */
interface Surveyed {
  readonly backend: string;
  readonly survey: Survey;
}

export interface ProposedSite {
  readonly id: string;
  readonly reasons: readonly string[];
  readonly logs?: { readonly sources: readonly ProposedSource[] };
  /** One for each backend with spans. */
  readonly traces?: readonly ProposedTraces[];
  /** One for each backend with series. */
  readonly metrics?: readonly ProposedMetrics[];
  readonly kubernetes?: readonly ProposedMetrics[];
}
interface ProposedSource {
  readonly id: string;
  /** One for each backend that has the indices. */
  readonly places: NonEmpty<ProposedPlace>;
  readonly reasons: readonly string[];
}
export interface ProposedPlace {
  readonly backend: string;
  readonly index: string;
  readonly layout: string;
}
interface ProposedTraces extends ProposedPlace {
  readonly reasons: readonly string[];
}
/** A source, and the backend in which it was found. */
type LocatedSource = FoundSource & { readonly backend: string };
export interface ProposedMetrics {
  readonly backend: string;
  readonly match: ForcedLabels;
  /** Names that dashboards ask for, over metrics that the source has. */
  readonly names?: MetricAliases;
  readonly reasons: readonly string[];
}

interface Proposal {
  readonly sites: readonly ProposedSite[];
  /** What was found but is in no site, each with the reason. */
  readonly notes: readonly string[];
}

/** Proposes at least one site, called `name` where nothing separates several. A site may have no part. */
export function proposeSites(found: readonly Surveyed[], name: string, now: Instant): Proposal {
  const locate = (list: (survey: Survey) => readonly FoundSource[]): readonly LocatedSource[] =>
    found.flatMap(({ backend, survey }) => list(survey).map((source) => ({ ...source, backend })));
  const [logs, traces] = [locate(({ logs }) => logs), locate(({ traces }) => traces)];
  const measured = found.filter(({ survey: { metrics } }) => metrics !== undefined);
  const namespaces = rankNamespaces([...logs, ...traces]);
  const whyOne = explainOneSite([...logs, ...traces], namespaces);
  const several = whyOne === undefined;
  const taken = new Set<string>();
  const idOf = new Map(namespaces.map((namespace) => [namespace, findUnusedName(toName(namespace), taken)]));
  const ids = several ? [...idOf.values()] : [name];
  const [home = name] = ids;
  const isOf =
    (id: string) =>
    ({ namespaces: [namespace] = [] }: FoundSource) =>
      !several || (namespace === undefined ? home : idOf.get(namespace)) === id;
  const notes: string[] = [];
  const matches = proposeMetrics(measured, ids, home, notes);
  const sites = ids.map((id): ProposedSite => {
    const own = { logs: logs.filter(isOf(id)), traces: traces.filter(isOf(id)) };
    const spans = proposeTraces(own.traces, now, notes);
    const reasons = several
      ? [
          `the environment ${id}: the namespace of its data streams`,
          ...(id === home && [...logs, ...traces].some(({ namespaces = [] }) => namespaces.length === 0)
            ? ["what has no namespace is here as well"]
            : []),
        ]
      : [`${whyOne}; each site is what one token may see as a whole`];
    return {
      id,
      reasons,
      ...(own.logs.length > 0 && { logs: { sources: proposeSources(own.logs, now) } }),
      ...(spans.length > 0 && { traces: spans }),
      ...matches.get(id),
    };
  });
  const others = [...matches].filter(([id]) => !ids.includes(id));
  const clusters = others.map(([id, parts]) => {
    return { id, reasons: [`Prometheus watches the cluster ${id}`], ...parts };
  });
  return { sites: [...sites, ...clusters], notes };
}

/** Why all is one site; undefined where each namespace is one. A site never has a pattern that reaches into another one. */
function explainOneSite(sources: readonly FoundSource[], namespaces: readonly string[]): string | undefined {
  if (namespaces.length < 2) return "nothing tells several apart";
  if (!areEnvironments(namespaces))
    return `the data streams have ${namespaces.length} namespaces, too many for environments`;
  const mixed = sources.find(({ namespaces = [] }) => namespaces.length > 1);
  return (
    mixed && `${mixed.index} has the data streams of several environments (${mixed.namespaces?.join(", ")})`
  );
}

/** Returns the namespaces, those with the most sources first. Sources without a namespace join the first. */
function rankNamespaces(sources: readonly FoundSource[]): readonly string[] {
  const counts = new Map<string, number>();
  for (const namespace of sources.flatMap(({ namespaces = [] }) => namespaces))
    counts.set(namespace, (counts.get(namespace) ?? 0) + 1);
  return [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).map(([namespace]) => namespace);
}

// ---- Documents ----------------------------------------------------------------------------------------------

/** Equal patterns in several backends are one source. */
function proposeSources(found: readonly LocatedSource[], now: Instant): readonly ProposedSource[] {
  const taken = new Set<string>();
  return [...Map.groupBy(found, ({ index }) => index)].map(([index, sources]) => {
    const source = requireFirst(sources);
    const { services } = source;
    const id = findUnusedName(deriveSourceId(index), taken);
    const [service, ...more] = services?.names ?? [];
    const hint =
      service === undefined
        ? []
        : [
            `for one service alone add where: '${services?.field}=${JSON.stringify(service)}'` +
              (more.length === 0 ? "" : ` (others: ${more.join(", ")})`),
          ];
    const [first, ...others] = sources.map(toPlace);
    if (first === undefined) throw new Error(`no place of ${index}`);
    const described = sources.map((one) => {
      const text = describeSource(one, "line", now);
      return sources.length === 1 ? text : `${one.backend}: ${text}`;
    });
    const copies =
      sources.length === 1
        ? []
        : ["with `dedupe: id` a line that several hold under one _id is answered once"];
    return { id, places: [first, ...others], reasons: [...described, ...copies, ...hint] };
  });
}

function toPlace({ backend, index, layout, guess }: LocatedSource): ProposedPlace {
  return { backend, index, layout: guess === undefined ? toSingleLayout(layout) : "auto" };
}

/** The spans of each backend with those events of spans that it has. Adds to the notes what is not shown. */
function proposeTraces(
  found: readonly LocatedSource[],
  now: Instant,
  notes: string[],
): readonly ProposedTraces[] {
  return [...Map.groupBy(found, ({ backend }) => backend)].flatMap(([backend, own]) => {
    const proposed = proposeTracesIn(backend, own, now, notes);
    return proposed === undefined ? [] : [proposed];
  });
}

/** Undefined without spans. Adds to the notes what is shown neither with spans nor as lines. */
function proposeTracesIn(
  backend: string,
  found: readonly FoundSource[],
  now: Instant,
  notes: string[],
): ProposedTraces | undefined {
  const spans = found.filter(({ holds }) => holds === "spans");
  const listLayouts = ({ layout }: FoundSource) => layout.split(", ");
  const layouts = new Set(spans.flatMap(listLayouts));
  // Events are shown only with spans of their layout.
  const used = found.filter((source) => listLayouts(source).some((layout) => layouts.has(layout)));
  const unused = found.filter((source) => !used.includes(source) && source.areLines !== true);
  for (const { index, layout } of unused)
    notes.push(`${index}: events of spans of ${layout}, of which none were found in the same environment`);
  if (spans.length === 0) return undefined;
  const [only] = layouts;
  const layout = layouts.size === 1 && only !== undefined ? toSingleLayout(only) : "auto";
  const indices = used.map(({ index }) => index);
  const awaited = [...new Set(spans.flatMap(deriveEventIndices))].filter(
    (index) => !indices.some((pattern) => hasIndex(pattern, index)),
  );
  return {
    backend,
    index: [...indices, ...awaited].sort(compareByReach).join(","),
    layout: layout,
    reasons: [
      ...used.map((source) =>
        source.holds === "events"
          ? `${source.index}: events of spans, ${source.layout} by their mapping`
          : `${source.index}: ${describeSource(source, "span", now)}`,
      ),
      ...awaited.map((index) => `${index}: where events of these spans come; none was found yet`),
    ],
  };
}

/**
 * The data stream that is given the events of a data stream's spans. Without it in the file a stack in which nothing has
 * failed so far would never show an error.
 */
function deriveEventIndices({ layout, index }: FoundSource): readonly string[] {
  const [, dataset, namespace] = /^traces-([^-,]+)-([^-,]+)$/.exec(index) ?? [];
  if (dataset === undefined) return [];
  if (layout === "otel") return [`logs-${dataset}-${namespace}`];
  return layout === "apm" ? [`logs-apm.error-${namespace}`] : [];
}

/** `auto` for an index pattern with several layouts, which are then detected by their mappings. */
function toSingleLayout(name: string): string {
  return name.includes(",") ? "auto" : name;
}

/** An exclusion takes away what stands before it: so what excludes stands first, and of it what reaches furthest. */
function compareByReach(a: string, b: string): number {
  const excludes = (index: string) => index.includes(",-");
  if (excludes(a) !== excludes(b)) return excludes(a) ? -1 : 1;
  const stem = (index: string) => index.split(",", 1)[0] ?? index;
  return excludes(a) ? stem(a).length - stem(b).length : a < b ? -1 : 1;
}

function describeSource(source: FoundSource, what: string, now: Instant): string {
  const { layout, shownBy = "mapping", guess, indices, newest } = source;
  const size = indices === 1 ? "1 index" : `${indices} indices`;
  const reason = guess === undefined ? `${layout} by its ${shownBy}` : `no known layout; ${guess}`;
  return `${reason}, ${size}, ${printNewest({ what, time: newest }, now)}`;
}

/** `logs-nginx.access-default` is `nginx.access`, `logs-nginx.*-default` is `nginx`, `filebeat-*` is `filebeat`. */
function deriveSourceId(index: string): string {
  const [stem = index] = index.split(",", 1);
  const dataset = /^logs-([^-*]+)(?:[._]\*)?-[^-*]+$/.exec(stem)?.[1];
  return toName(dataset ?? stem.replaceAll(/[-._]*\*[-._]*/g, "-").replaceAll(/^-+|-+$/g, ""));
}

/** Replaces characters that a name in the file must not have. */
function toName(text: string): string {
  return text.replaceAll(/[^\w.-]+/g, "-") || "logs";
}

function findUnusedName(name: string, taken: Set<string>): string {
  let found = name;
  for (let at = 2; taken.has(found); at += 1) found = `${name}-${at}`;
  taken.add(found);
  return found;
}

// ---- Metrics ------------------------------------------------------------------------------------------------

type Parts = Pick<ProposedSite, "metrics" | "kubernetes">;

/** Proposes metrics and Kubernetes by site. A cluster that no site is named after gets a site of its own. */
function proposeMetrics(
  measured: readonly Surveyed[],
  ids: readonly string[],
  home: string,
  notes: string[],
): ReadonlyMap<string, Parts> {
  const parts = new Map<string, Parts>();
  for (const one of measured) addMetrics(parts, one, ids, home, notes);
  addClusters(parts, measured, ids, home);
  return parts;
}

function addPart(parts: Map<string, Parts>, id: string, part: keyof Parts, proposed: ProposedMetrics): void {
  const own = parts.get(id);
  parts.set(id, { ...own, [part]: [...(own?.[part] ?? []), proposed] });
}

function addMetrics(
  parts: Map<string, Parts>,
  { backend, survey: { labels, metrics } }: Surveyed,
  ids: readonly string[],
  home: string,
  notes: string[],
): void {
  const found = metrics?.problems.length === 0 ? metrics.found.slice(0, 1) : [];
  if (found.length === 0) return;
  const matches = ids.flatMap((id) => {
    const match = ids.length === 1 ? undefined : findForcedLabels(id, labels);
    return match === undefined ? [] : [{ id, match }];
  });
  for (const { id, match } of matches)
    addPart(parts, id, "metrics", { backend, match, reasons: [`targets carry ${printMatch(match)}`] });
  if (matches.some(({ id }) => id === home)) return;
  // Without a label the home site would read what belongs to the others too.
  if (matches.length > 0)
    notes.push(`${backend}: series of no site, as no label of their targets names ${home}`);
  else
    addPart(parts, home, "metrics", { backend, match: {}, reasons: [...found, ...describeLabels(labels)] });
}

/** A cluster that several servers watch is one, by the name in its labels; those without a name are one for each server. */
function addClusters(
  parts: Map<string, Parts>,
  measured: readonly Surveyed[],
  ids: readonly string[],
  home: string,
): void {
  const watched = measured.flatMap(({ backend, survey: { labels, kubernetes } }) =>
    kubernetes
      .filter(({ report }) => report.problems.length === 0)
      .map(({ match, report }) => ({ backend, labels, match, reasons: report.found })),
  );
  const nameCluster = ({ backend, match }: (typeof watched)[number]) =>
    match.cluster === undefined ? `of ${backend}` : printMatch(match);
  const clusters = [...Map.groupBy(watched, nameCluster).values()].map((places) => ({
    match: requireFirst(places).match,
    places,
  }));
  const named = clusters.filter(
    ({ match }) => match.cluster !== undefined && ids.includes(toName(match.cluster)),
  );
  // The home site gets the first cluster that is named after no site, if it has none of its own.
  const others = clusters.filter((cluster) => !named.includes(cluster));
  const forHome = named.some(({ match }) => match.cluster === home) ? undefined : others[0];
  for (const cluster of clusters) {
    const { match, places } = cluster;
    const preferred = cluster === forHome ? home : toName(match.cluster ?? home);
    const isTaken = parts.get(preferred)?.kubernetes !== undefined;
    const id = isTaken ? findUnusedName(preferred, new Set([...ids, ...parts.keys()])) : preferred;
    const isNew = !ids.includes(id);
    for (const { backend, labels, reasons } of places) {
      if (isNew && isLabelValue(labels, "cluster", match.cluster))
        addPart(parts, id, "metrics", { backend, match, reasons: ["the metrics of this cluster's targets"] });
      addPart(parts, id, "kubernetes", { backend, match, reasons });
    }
  }
}

function isLabelValue(labels: Survey["labels"], label: string, value: string | undefined): boolean {
  return value !== undefined && labels.get(label)?.includes(value) === true;
}

/** The first label with the name of the site among its values. `job` separates programs, not sites. */
function findForcedLabels(id: string, labels: Survey["labels"]): ForcedLabels | undefined {
  for (const [label, values] of labels) {
    const value = values.find((one) => toName(one) === id);
    if (label !== "job" && value !== undefined) return { [label]: value };
  }
  return undefined;
}

const maxLabelValues = 6;

function describeLabels(labels: Survey["labels"]): readonly string[] {
  if (labels.size === 0) return ["no target of the last five minutes has a label that would separate sites"];
  return [
    "a match such as { job: … } lets a site see no others:",
    ...[...labels].map(([label, values]) => {
      const more = values.length > maxLabelValues ? `, and ${values.length - maxLabelValues} more` : "";
      return `  ${label}: ${values.slice(0, maxLabelValues).join(", ")}${more}`;
    }),
  ];
}

function printMatch(match: ForcedLabels): string {
  return Object.entries(match)
    .map(([label, value]) => `${label}=${value}`)
    .join(", ");
}
