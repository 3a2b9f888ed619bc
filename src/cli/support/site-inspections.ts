// What a configuration lays into a backend, as questions to it: each log source of a site, and each other part whole.
// `check` prints the answers, `serve` logs what is wrong with them; both walk the same list, so a part that joins it is
// looked at by both.

import { spanSourceOf } from "../../access/sites.ts";
import type { Config, PartName, SiteConfig } from "../../config/config.ts";
import { type Instant, now } from "../../core/time.ts";
import { printIndex } from "../../intake/intake.ts";
import type { Backend, Match, PartReport, SourceReport } from "../../store/store.ts";

export interface Question {
  readonly site: string;
  readonly part: PartName;
  /** Where the configuration has it: `sites.shop.logs.sources.app`. */
  readonly path: string;
  /** What tells it from the others of its part; nothing where there are no others. */
  readonly title: readonly string[];
  /** @throws {BackendError} */
  readonly ask: (signal: AbortSignal) => Promise<Report>;
}
export interface Report {
  /** What was found: lines of cells. */
  readonly rows: readonly (readonly string[])[];
  /** Where what lies there has times and was looked at: the newest, or undefined where there is nothing. */
  readonly newest?: { readonly what: string; readonly time: Instant | undefined };
  readonly limitations: readonly string[];
  readonly problems: readonly string[];
}

/** In the order of the configuration. Parts that the backend has no store for are left out. */
export function questionsFor(backend: Backend, config: Config): readonly Question[] {
  return Object.entries(config.sites).flatMap(([site, entry]) => [
    ...logQuestions(backend, site, entry),
    ...spanQuestions(backend, site, entry),
    ...matchQuestions("metrics", backend, site, entry),
    ...matchQuestions("kubernetes", backend, site, entry),
    ...reportQuestions(backend, site, entry),
  ]);
}

function logQuestions(
  { name, inspections: { logs: inspect } }: Backend,
  site: string,
  { logs }: SiteConfig,
): readonly Question[] {
  if (logs?.backend !== name || inspect === undefined) return [];
  return Object.entries(logs.sources).map(([id, entry]) => ({
    site,
    part: "logs",
    path: `sites.${site}.logs.sources.${id}`,
    title: [id, entry.index],
    ask: async (signal) => reportSource(await inspect({ id, ...entry }, signal), entry.index, "line"),
  }));
}

function spanQuestions(
  { name, inspections: { traces: inspect } }: Backend,
  site: string,
  { traces }: SiteConfig,
): readonly Question[] {
  if (traces?.backend !== name || inspect === undefined) return [];
  return [
    {
      site,
      part: "traces",
      path: `sites.${site}.traces`,
      title: [traces.index],
      ask: async (signal) => {
        return reportSource(await inspect(spanSourceOf(site, traces), signal), traces.index, "span");
      },
    },
  ];
}

/** `what` lies in the index, in the singular. */
function reportSource(report: SourceReport, index: string, what: string): Report {
  const { profile, indices, newest, limitations, problems } = report;
  const count = indices === undefined ? [] : [indices === 1 ? "1 index" : `${indices} indices`];
  return {
    rows: [[`profile ${profile}`, ...count]],
    // What is wrong may have kept from looking.
    ...((newest !== undefined || problems.length === 0) && { newest: { what, time: newest } }),
    limitations,
    problems: indices === 0 && problems.length === 0 ? [`no index is named ${index}`] : problems,
  };
}

function matchQuestions(
  part: "metrics" | "kubernetes",
  { name, inspections }: Backend,
  site: string,
  { [part]: entry }: SiteConfig,
): readonly Question[] {
  const inspect: ((match: Match, signal: AbortSignal) => Promise<PartReport>) | undefined = inspections[part];
  if (entry?.backend !== name || inspect === undefined) return [];
  const ask = async (signal: AbortSignal): Promise<Report> => {
    const { found, limitations, problems } = await inspect(entry.match, signal);
    return { rows: found.map((line) => [line]), limitations, problems };
  };
  return [{ site, part, path: `sites.${site}.${part}`, title: [], ask }];
}

/** Whether reports that come today can be written. */
function reportQuestions(
  { name, inspections: { reports: inspect } }: Backend,
  site: string,
  { frontend }: SiteConfig,
): readonly Question[] {
  if (frontend?.backend !== name || inspect === undefined) return [];
  const ask = async (signal: AbortSignal): Promise<Report> => {
    const target = { site, index: printIndex(frontend.index, now()), profile: frontend.profile };
    const { found, limitations, problems } = await inspect(target, signal);
    return { rows: found.map((line) => [line]), limitations, problems };
  };
  return [{ site, part: "frontend", path: `sites.${site}.frontend`, title: [], ask }];
}
