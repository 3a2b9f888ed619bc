// The folder of published visuals. A wrong file is logged once and not published; the others are.
import { runInUnownedTurns } from "../core/async/turns.ts";
import { type Issue, LimitReached } from "../core/errors.ts";
import type { Millis } from "../core/time.ts";
import { watchFolder } from "../files/watched-folder.ts";
import type { LogEvent } from "../store/backend.ts";
import {
  createVisualFinder,
  type PublishedVisuals,
  readVisual,
  type Visual,
  type VisualSource,
} from "./visual.ts";

export interface VisualDirectory extends VisualSource {
  readonly listPublished: () => readonly Visual[];
  /** Reads the folder of another configuration. What it resolves to publishes its visuals in place of those of now. */
  readonly prepare: (folder: string | undefined) => Promise<() => void>;
  readonly close: () => void;
}

interface VisualDirectoryOptions {
  /** Asked for at each read. Without a folder nothing is published. */
  readonly folder: () => string | undefined;
  readonly check: (visual: Visual) => readonly Issue[];
  readonly log: (event: LogEvent) => void;
  /** How long one computation may take; asked for each time. */
  readonly deadline: () => Millis;
  readonly interval?: Millis;
  readonly cacheFor?: Millis;
}

/** How old a shared answer may be: enough for a page that many open at once. */
const defaultCacheFor: Millis = 10_000;

/** Resolves once the folder has been read. */
export async function openVisualDirectory(options: VisualDirectoryOptions): Promise<VisualDirectory> {
  const { folder, check, log, deadline, interval, cacheFor = defaultCacheFor } = options;
  let visuals: readonly Visual[] = [];
  let find = createVisualFinder(visuals);
  const watched = await watchFolder<Visual>({
    folder,
    log,
    interval,
    isRead: (name) => /\.ya?ml$/i.test(name),
    parse: (text, file) => readVisual(text, file, check),
    change: (contents) => {
      visuals = selectDistinct(contents, log);
      find = createVisualFinder(visuals);
    },
    messages: { unreadable: "visuals cannot be read", wrong: "visual not published" },
  });
  return {
    listPublished: () => visuals,
    find: (id) => find(id),
    createAnswerCache: () => createAnswerCache(deadline, cacheFor),
    prepare: watched.prepare,
    close: watched.close,
  };
}

/** Computes a visual's answer once for all who ask for it while it is computed, and for `cacheFor` afterwards. */
function createAnswerCache(deadline: () => Millis, cacheFor: Millis): PublishedVisuals["shareAnswer"] {
  // By the visual itself: a changed file is another visual.
  const shared = new WeakMap<Visual, Promise<readonly string[]>>();
  return (visual, compute) => {
    const known = shared.get(visual);
    if (known !== undefined) return known;
    const late = AbortSignal.timeout(deadline());
    const answer = runInUnownedTurns(() => compute(late)).catch((error: unknown) => {
      const message = "the deadline of a shared answer has passed";
      throw late.aborted ? new LimitReached("deadline", "timeout", message) : error;
    });
    shared.set(visual, answer);
    const forget = () => shared.delete(visual);
    answer.then(() => setTimeout(forget, cacheFor).unref(), forget);
    return answer;
  };
}

/** Of two files with one id the first is published: nobody can know which of them is meant. */
function selectDistinct(
  visuals: ReadonlyMap<string, Visual>,
  log: VisualDirectoryOptions["log"],
): readonly Visual[] {
  const byId = new Map<string, Visual>();
  for (const [file, visual] of visuals) {
    if (byId.has(visual.id)) {
      const reason = `${file}: another file has its id`;
      log({ level: "error", message: "visual not published", file, reason });
    } else byId.set(visual.id, visual);
  }
  return [...byId.values()];
}
