// Whether each published visual can be answered: its file alone does not say what a metric is, or which tags it has.
import { connectSites, listPartBackends } from "../../access/sites.ts";
import type { Config } from "../../config/config.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import { readOwn } from "../../core/collections.ts";
import { findMetricsPart } from "../../operations/metrics/read-series.ts";
import { checkVisual, listMetricNames, savedVisual } from "../../operations/metrics/visuals.ts";
import { type Context, createEndpoint } from "../../operations/runtime/operation.ts";
import type { Backend } from "../../store/backend.ts";
import type { PublishedVisuals, Visual, VisualData } from "../../visuals/visual.ts";
import { openVisualDirectory, type VisualDirectory } from "../../visuals/visual-directory.ts";
import type { Shell } from "../support/shell.ts";
import {
  type BackendFinding,
  listFaults,
  type Outcome,
  tryInTime,
  tryOpenBackend,
} from "./backend-findings.ts";

export interface VisualFindings {
  readonly published: readonly VisualFinding[];
  /** The faults of files that are not published. */
  readonly problems: readonly string[];
}

interface VisualFinding extends Pick<Visual, "title" | "site"> {
  readonly answer: Outcome<AnswerContent> | "not asked for" | "of an unknown site";
}

/** Whether its answer has series or rows now, and if not, whether there is a metric of its names at all. */
type AnswerContent = "has values" | "no values" | "no metric";

/** More at once would hold up what else is inspected. */
const maxConcurrentVisuals = 4;

/**
 * Reads the folder, and asks for the answer of each visual whose backends have answered the probe. Rejects only when
 * `shell.signal` is aborted.
 */
export async function inspectVisuals(
  config: Config,
  file: string,
  shell: Shell,
  findings: readonly BackendFinding[],
): Promise<VisualFindings> {
  const { deadline } = config.limits;
  const problems: string[] = [];
  const gallery = await openVisualDirectory({
    folder: () => config.visuals,
    check: checkVisual,
    log: (event) => problems.push(...listFaults(event)),
    deadline: () => deadline,
  });
  gallery.close();
  const visuals = gallery.listPublished();
  const failed = new Set(findings.flatMap(({ name, info }) => ("failure" in info ? [name] : [])));
  const isAnswerable = ({ site: id }: Visual): boolean => {
    const site = readOwn(config.sites, id);
    return site !== undefined && !listPartBackends(site, "metrics").some((name) => failed.has(name));
  };
  const backends = openMetricBackends(visuals.filter(isAnswerable), config, file, shell);
  try {
    const sites = connectSites(config, backends);
    const answer = async (visual: Visual): Promise<VisualFinding> => {
      const { title, site } = visual;
      if (!Object.hasOwn(config.sites, site)) return { title, site, answer: "of an unknown site" };
      if (!isAnswerable(visual)) return { title, site, answer: "not asked for" };
      const context = { user: "", sites, limits: config.limits, now: () => shell.now() };
      const read = (signal: AbortSignal) => readContent(visual, gallery, { ...context, signal });
      return { title, site, answer: await tryInTime(read, shell, deadline) };
    };
    return { published: await mapConcurrent(visuals, maxConcurrentVisuals, answer, shell.signal), problems };
  } finally {
    // The findings are valid even where the connections cannot be closed.
    await Promise.all([...backends.values()].map((backend) => backend.close().catch(() => undefined)));
  }
}

/** Those that cannot be opened are left out: the report says so of the backend. */
function openMetricBackends(
  visuals: readonly Visual[],
  config: Config,
  file: string,
  shell: Shell,
): ReadonlyMap<string, Backend> {
  const sites = Object.entries(config.sites).filter(([id]) => visuals.some(({ site }) => site === id));
  const names = new Set(sites.flatMap(([, site]) => listPartBackends(site, "metrics")));
  return new Map(
    [...names].flatMap((name) => {
      const opened = tryOpenBackend(name, config, file, shell);
      return "value" in opened ? [[name, opened.value] as const] : [];
    }),
  );
}

const endpoint = createEndpoint(savedVisual);

async function readContent(
  visual: Visual,
  gallery: VisualDirectory,
  context: Context,
): Promise<AnswerContent> {
  const visuals: PublishedVisuals = {
    find: gallery.find,
    shareAnswer: (_, compute) => compute(context.signal),
  };
  const answer = endpoint.prepare({ id: visual.id }).run({ ...context, visuals });
  if (!("pieces" in answer)) throw new TypeError("saved visuals are answered in pieces");
  const pieces = await Array.fromAsync(answer.pieces);
  const { series, rows } = JSON.parse(pieces.map(({ text }) => text).join("")) as VisualData;
  if ((series ?? rows ?? []).length > 0) return "has values";
  return (await hasMetric(visual, context)) ? "no values" : "no metric";
}

/** Whether the site has one of the metrics that the visual names. */
async function hasMetric(visual: Visual, { sites, signal }: Context): Promise<boolean> {
  const { store, match } = findMetricsPart(sites.get(visual.site));
  for (const name of listMetricNames(visual))
    if ((await store.type(match, name, signal)) !== undefined) return true;
  return false;
}
