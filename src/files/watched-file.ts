// One file that is looked at every second. A mounted file may change by a symbolic link that is replaced, of which a notice of
// the file system tells nothing.
import { type Stats, statSync } from "node:fs";
import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Millis } from "../core/time.ts";

const interval: Millis = 1_000;

/**
 * Calls `changed` when the file was changed, created or deleted, until `signal` aborts. A file that two looks find in different
 * states is being written: the half of it may be a right one, with fewer tokens. It is waited for. `pause` is called before each look.
 */
export function watchFile(
  path: string,
  changed: () => void,
  signal: AbortSignal,
  pause: () => Promise<unknown> = waitInterval,
): void {
  // Synchronously, because the caller reads the file next: a later first state could miss a change.
  let told = readStamp(path);
  let seen = told;
  const look = async () => {
    const found = await stat(path).then(formatStamp, () => formatStamp());
    if (signal.aborted) return;
    if (found === seen && found !== told) {
      told = found;
      changed();
    }
    seen = found;
    wait();
  };
  const wait = () => void pause().then(look);
  wait();
}

function waitInterval(): Promise<unknown> {
  return sleep(interval, undefined, { ref: false });
}

function readStamp(path: string): string {
  try {
    return formatStamp(statSync(path));
  } catch {
    return formatStamp();
  }
}

function formatStamp(found?: Stats): string {
  return found === undefined ? "missing" : `${found.mtimeMs} ${found.ino} ${found.size}`;
}
