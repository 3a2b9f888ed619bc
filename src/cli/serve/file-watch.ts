// Notices changes of the configuration and of every file that it names.
import type { Shell } from "../support/shell.ts";

/**
 * Returns a shell that watches every file which is read through it: the configuration, and the secrets, certificates and
 * layouts that it names. `watch` sets what to call on a change. A file that is no longer named stays watched; the reload
 * that it may cause changes nothing.
 */
export function createWatchingShell(shell: Shell) {
  const paths = new Set<string>();
  let missed = false;
  let notify = (): void => {
    missed = true;
  };
  const reading: Shell = {
    ...shell,
    readText(path) {
      // Before the file is read, and also where it is missing: it may be created.
      if (!paths.has(path)) shell.onChange(path, () => notify(), shell.signal);
      paths.add(path);
      return shell.readText(path);
    },
  };
  const watch = (changed: () => void, signal: AbortSignal) => {
    notify = () => {
      if (!signal.aborted) changed();
    };
    if (missed) notify();
  };
  return { reading, watch };
}

/** Returns a function that runs `work`, never twice at once: a call while it runs makes it run once more afterwards. */
export function createSerialRunner(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  let again = false;
  const run = async () => {
    try {
      while (again) {
        again = false;
        await work();
      }
    } finally {
      running = undefined;
    }
  };
  return () => {
    again = true;
    running ??= run();
    return running;
  };
}
