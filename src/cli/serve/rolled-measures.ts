// Adds up what the rollers report, by backend, site and kind, for the metrics.
import { type Instant, toMillis } from "../../core/time.ts";
import type { RolledStep } from "../../telemetry/kept-telemetry.ts";
import { findReach } from "../../tracing/rollup-store/manifest.ts";
import type { RolledMeasure } from "../../tracing/rollup-store/roller.ts";

/** For one configuration: another one may have other groups. Returns a step with the sums over the groups seen so far. */
export function createMeasureSums(): (measure: RolledMeasure, now: Instant) => RolledStep {
  const known = new Map<string, Map<string, Pick<RolledStep, "segments" | "bytes" | "reach">>>();
  return ({ backend, site, kind, group, took, documents, manifest }, now) => {
    const reach = findReach(manifest);
    const segments = [...manifest.segments, ...manifest.merged];
    const key = JSON.stringify([backend, site, kind]);
    const groups = known.get(key) ?? new Map();
    known.set(key, groups);
    groups.set(group, {
      segments: segments.length,
      bytes: segments.reduce((sum, segment) => sum + segment.bytes, 0),
      reach: reach === undefined ? 0 : toMillis((now - reach) as Instant),
    });
    const all = [...groups.values()];
    return {
      backend,
      site,
      kind,
      took,
      documents,
      segments: all.reduce((sum, one) => sum + one.segments, 0),
      bytes: all.reduce((sum, one) => sum + one.bytes, 0),
      reach: Math.min(...all.map((one) => one.reach)),
    };
  };
}
