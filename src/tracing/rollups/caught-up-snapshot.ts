// Copies of a shard show writes at different moments, up to the refresh interval of their index apart. So a snapshot of one copy may
// lack what an earlier snapshot of another one had. Another snapshot, or a later one, has it; where it was deleted, none has.
import { setTimeout as sleep } from "node:timers/promises";
import type { Millis } from "../../core/time.ts";
import type { SnapshotVersion, SpanReader, SpanSnapshot, SpanSources } from "../../store/spans.ts";

/** An earlier version, and what is kept as of it. */
export interface KeptVersion {
  readonly version: SnapshotVersion;
  /** Whether anything that is kept was made of some of these origins. */
  readonly needs: (origins: ReadonlySet<string>) => boolean;
}

interface CaughtUpQuery {
  readonly sources: SpanSources;
  /** What should hold; of the same sources. The snapshot is opened as later than the first one. */
  readonly kept: readonly KeptVersion[];
  /** Before another snapshot is opened. */
  readonly pause: Millis;
}

const maxAttempts = 3;

/**
 * Opens a snapshot that has the documents of which figures are kept, or the last one of a few. Undefined and errors as
 * `SpanReader.openSnapshot`.
 */
export async function openCaughtUpSnapshot(
  { openSnapshot }: SpanReader,
  { sources, kept, pause }: CaughtUpQuery,
  signal: AbortSignal,
): Promise<SpanSnapshot | undefined> {
  for (let attempt = 1; ; attempt += 1) {
    const snapshot = await openSnapshot?.(sources, kept[0]?.version, signal);
    if (snapshot === undefined || attempt === maxAttempts) return snapshot;
    try {
      if (!(await isBehindAny(snapshot, sources, kept, signal))) return snapshot;
    } catch (error) {
      snapshot.close();
      throw error;
    }
    snapshot.close();
    await sleep(pause, undefined, { signal });
  }
}

async function isBehindAny(
  snapshot: SpanSnapshot,
  sources: SpanSources,
  [first, ...others]: readonly KeptVersion[],
  signal: AbortSignal,
): Promise<boolean> {
  if (first?.needs(snapshot.behindOrigins) === true) return true;
  for (const { version, needs } of others) {
    const { behindOrigins } = await snapshot.select(sources, version, signal);
    if (needs(behindOrigins)) return true;
  }
  return false;
}
