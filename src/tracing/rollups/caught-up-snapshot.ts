// Copies of a shard show writes at different moments, up to the refresh interval of their index apart. So a snapshot of one copy may
// lack what an earlier snapshot of another one had. Another snapshot, or a later one, has it; where it was deleted, none has.
import { setTimeout as sleep } from "node:timers/promises";
import type { Millis } from "../../core/time.ts";
import type { SnapshotVersion, SpanReader, SpanSnapshot, SpanSources } from "../../store/spans.ts";

interface CaughtUpQuery {
  readonly sources: SpanSources;
  /** Of the same sources. */
  readonly since: SnapshotVersion | undefined;
  /** Others that should be held too. */
  readonly versions: readonly SnapshotVersion[];
  /** Before another snapshot is opened. */
  readonly pause: Millis;
}

const maxAttempts = 3;

/**
 * Opens a snapshot that is not behind any of the versions, or the last one of a few. Undefined and errors as
 * `SpanReader.openSnapshot`.
 */
export async function openCaughtUpSnapshot(
  { openSnapshot }: SpanReader,
  { sources, since, versions, pause }: CaughtUpQuery,
  signal: AbortSignal,
): Promise<SpanSnapshot | undefined> {
  for (let attempt = 1; ; attempt += 1) {
    const snapshot = await openSnapshot?.(sources, since, signal);
    if (snapshot === undefined || attempt === maxAttempts) return snapshot;
    try {
      if (!(await isBehindAny(snapshot, sources, versions, signal))) return snapshot;
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
  versions: readonly SnapshotVersion[],
  signal: AbortSignal,
): Promise<boolean> {
  if (snapshot.isBehind) return true;
  for (const version of versions) {
    if ((await snapshot.select(sources, version, signal)).isBehind) return true;
  }
  return false;
}
