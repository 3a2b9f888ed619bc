// Whether each published visual can be answered: its file alone does not say what a metric is, or which tags it has.
import { connectSites, listPartBackends } from "../../access/sites.ts";
import type { Config } from "../../config/config.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import { checkVisual, savedVisual } from "../../operations/metrics/visuals.ts";
import { type Context, createEndpoint } from "../../operations/runtime/operation.ts";
import type { Backend } from "../../store/backend.ts";
import type { PublishedVisuals, Visual, VisualData } from "../../visuals/visual.ts";
import { openVisualDirectory, type VisualDirectory } from "../../visuals/visual-directory.ts";
import type { Shell } from "../support/shell.ts";
import { listFaults, type Outcome, tryInTime, tryOpenBackend } from "./backend-findings.ts";

export interface VisualFindings {
  readonly published: readonly VisualFinding[];
  /** The faults of files that are not published. */
  readonly problems: readonly string[];
}

interface VisualFinding extends Pick<Visual, "title" | "site"> {
  /** How many series or rows its answer has now; undefined where its site is not configured. */
  readonly size: Outcome<number> | undefined;
}

/** More at once would hold up what else is inspected. */
const maxConcurrentVisuals = 4;

/** Reads the folder, and asks for the answer of each visual. Rejects only when `shell.signal` is aborted. */
export async function inspectVisuals(config: Config, file: string, shell: Shell): Promise<VisualFindings> {
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
  const backends = openMetricBackends(visuals, config, file, shell);
  try {
    const sites = connectSites(config, backends);
    const answer = async (visual: Visual): Promise<VisualFinding> => {
      const { title, site } = visual;
      if (!Object.hasOwn(config.sites, site)) return { title, site, size: undefined };
      const context = { user: "", sites, limits: config.limits, now: () => shell.now() };
      const measure = (signal: AbortSignal) => measureAnswer(visual, gallery, { ...context, signal });
      return { title, site, size: await tryInTime(measure, shell, deadline) };
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

async function measureAnswer({ id }: Visual, gallery: VisualDirectory, context: Context): Promise<number> {
  const visuals: PublishedVisuals = {
    find: gallery.find,
    shareAnswer: (_, compute) => compute(context.signal),
  };
  const answer = endpoint.prepare({ id }).run({ ...context, visuals });
  if (!("pieces" in answer)) throw new TypeError("saved visuals are answered in pieces");
  const pieces = await Array.fromAsync(answer.pieces);
  const { series, rows } = JSON.parse(pieces.map(({ text }) => text).join("")) as VisualData;
  return (series ?? rows ?? []).length;
}
