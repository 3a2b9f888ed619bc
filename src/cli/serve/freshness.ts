// How fresh the data of each source is, for the metrics: with `freshness`, each is asked for its newest row every while.
import { buildSpanSource, listLogPlaces } from "../../access/sites.ts";
import type { Config, MetricsPart, TracesPart } from "../../config/config.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import type { Instant } from "../../core/time.ts";
import type { Backend } from "../../store/backend.ts";
import type { SourceLabels, Telemetry } from "../../telemetry/telemetry.ts";
import { groupSitesByBackend, listOwnPlaces, type NamedSite } from "../support/site-inspections.ts";
import { addAnswerTimeout, awaitAbort } from "./connected-config.ts";

/** Sources of one backend that are asked at once. */
const maxConcurrent = 2;

/** Asks until the signal is aborted; what is told of the sources then ends. Never rejects. */
export async function watchFreshness(
  { config, backends }: { readonly config: Config; readonly backends: ReadonlyMap<string, Backend> },
  { recordNewest }: Pick<Telemetry, "recordNewest">,
  signal: AbortSignal,
): Promise<void> {
  const { freshness: every } = config;
  if (every === undefined) return;
  const sites = groupSitesByBackend(config.sites);
  await Promise.all(
    [...backends.values()].map(async (backend) => {
      const questions = listQuestions(backend, sites.get(backend.name) ?? []);
      const ask = async ({ source, ask }: Question, signal: AbortSignal): Promise<void> => {
        try {
          const newest = await ask(addAnswerTimeout(signal));
          if (!signal.aborted) recordNewest(source, newest);
        } catch {
          // What was told last grows older, which is what an alert looks at.
        }
      };
      while (!signal.aborted) {
        const next = AbortSignal.any([signal, AbortSignal.timeout(every)]);
        await mapConcurrent(questions, maxConcurrent, ask, signal).catch(() => undefined);
        await awaitAbort(next);
      }
      for (const { source } of questions) recordNewest(source, undefined);
    }),
  );
}

interface Question {
  readonly source: SourceLabels;
  /** @throws {BackendError} */
  readonly ask: (signal: AbortSignal) => Promise<Instant | undefined>;
}

/** One for each source that the backend holds. A list of places names each backend once. */
function listQuestions(backend: Backend, sites: readonly NamedSite[]): readonly Question[] {
  return sites.flatMap(([site, parts]) => [
    ...listLogQuestions(backend, site, parts),
    ...listTraceQuestions(backend, site, parts),
    ...listSeriesQuestions(backend, site, parts),
  ]);
}

type SiteParts = NamedSite[1];

function listLogQuestions(
  { name, findNewest: { logs: find } = {} }: Backend,
  site: string,
  { logs }: SiteParts,
): readonly Question[] {
  if (logs === undefined || find === undefined) return [];
  return Object.entries(logs.sources).flatMap(([id, entry]) =>
    listLogPlaces(id, entry, logs)
      .filter(({ backend }) => backend === name)
      .map(({ source }) => ({
        source: { backend: name, site, part: "logs", source: id },
        ask: (signal) => find(source, signal),
      })),
  );
}

function listTraceQuestions(
  { name, findNewest: { traces: find } = {} }: Backend,
  site: string,
  { traces }: SiteParts,
): readonly Question[] {
  if (find === undefined) return [];
  return listOwnPlaces<TracesPart>(name, traces).map(({ place }) => ({
    source: { backend: name, site, part: "traces", source: "" },
    ask: (signal) => find(buildSpanSource(site, place), signal),
  }));
}

/** Of both parts whose source is a set of forced labels. */
function listSeriesQuestions(
  { name, findNewest = {} }: Backend,
  site: string,
  parts: SiteParts,
): readonly Question[] {
  return (["metrics", "kubernetes"] as const).flatMap((part) => {
    const find = findNewest[part];
    if (find === undefined) return [];
    return listOwnPlaces<MetricsPart>(name, parts[part]).map(({ place: { match } }) => ({
      source: { backend: name, site, part, source: "" },
      ask: (signal: AbortSignal) => find(match, signal),
    }));
  });
}
