// The figures that requests to one backend keep: in memory, and in the store of the configuration where there is one.
import { toMillis } from "../../core/time.ts";
import type { IO } from "../../store/backend.ts";
import { createRollupCache, type RollupCache } from "../rollups/rollup-cache.ts";
import { createRollupCatalogue } from "./catalogue.ts";

/** `backend` names them in explanations, metrics and the log. */
export function openKeptFigures(
  backend: string,
  io: Pick<
    IO,
    | "now"
    | "log"
    | "rollupBytes"
    | "findRollupStore"
    | "findRetention"
    | "recordCacheLookup"
    | "recordRollupBytes"
  >,
): RollupCache {
  const { findRollupStore, findRetention } = io;
  const report = (err: unknown): void =>
    io.log({ level: "warn", message: "kept figures cannot be read", backend, err });
  return createRollupCache({
    backend,
    maxBytes: io.rollupBytes,
    // The store is found when it is first needed.
    stored:
      findRollupStore &&
      createRollupCatalogue(findRollupStore, () => toMillis(io.now()), report, findRetention),
    recordLookup: (hit) => io.recordCacheLookup("rollups", hit),
    recordBytes: (bytes) => io.recordRollupBytes?.(backend, bytes),
  });
}
