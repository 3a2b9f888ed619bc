// What a backend of a test is given by its surroundings.
import { now } from "#src/core/time.ts";
import type { IO } from "#src/store/backend.ts";

/** Tells nobody anything, keeps nothing, and has no files. */
export const testIO: IO = {
  now,
  log: () => undefined,
  recordRequest: () => undefined,
  recordCacheLookup: () => undefined,
  rollupBytes: 0,
  metricCacheBytes: 0,
  readText: (path) => {
    throw new Error(`no file ${path} in this test`);
  },
};
