// The metrics of kept figures: of all groups of a kind, and of those of the last configuration only.
import { expect, test } from "vitest";
import { createMeasureSums } from "#src/cli/serve/rolled-measures.ts";
import type { Instant } from "#src/core/time.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import type { StoredSegment } from "#src/tracing/rollups/stored-cover.ts";

const now = 600_000_000_000n as Instant;

/** Segments that follow one another up to now, together so long and with so many bytes. */
function createSegments(count: number, bytes: number, seconds: bigint): readonly StoredSegment[] {
  const first = now - seconds * 1_000_000_000n;
  return Array.from({ length: count }, (_, n) => ({
    range: {
      from: (first + BigInt(n)) as Instant,
      to: (n === count - 1 ? now : first + BigInt(n)) as Instant,
    },
    id: String(n),
    bytes: n === 0 ? bytes : 0,
    origins: [],
  }));
}

function createMeasure(
  group: string,
  segments: readonly StoredSegment[],
  merged: readonly StoredSegment[] = [],
) {
  const manifest = { at: 0, version: "1", segments, merged, unmergeable: [] };
  return { backend: "es", site: "shop", kind: "site_edges", took: 500, documents: 10, group, manifest };
}

async function listMetrics({ metrics }: ReturnType<typeof createTelemetry>): Promise<readonly string[]> {
  const { text } = await metrics();
  return text.split("\n").filter((line) => line.startsWith("readout_rolled_"));
}

const labels = '{backend="es",site="shop",kind="site_edges"}';

test("the figures of a kind are those of all its groups", async () => {
  const telemetry = createTelemetry({ write: () => undefined });
  const kept = telemetry.openKeptTelemetry();
  const addUp = createMeasureSums();
  for (const measure of [
    createMeasure("alone", createSegments(3, 100, 60n)),
    createMeasure("with payments", createSegments(2, 50, 30n)),
    createMeasure("alone", createSegments(3, 90, 90n), createSegments(1, 30, 90n)),
  ])
    kept.recordRolled(addUp(measure, now));
  expect(await listMetrics(telemetry)).toEqual([
    `readout_rolled_seconds_total${labels} 1.5`,
    `readout_rolled_documents_total${labels} 30`,
    `readout_rolled_segments${labels} 6`,
    `readout_rolled_bytes${labels} 170`,
    `readout_rolled_reach_seconds${labels} 30`,
  ]);
});

test("a group without segments reaches nowhere", () => {
  const addUp = createMeasureSums();
  addUp(createMeasure("alone", createSegments(3, 100, 60n)), now);
  expect(addUp(createMeasure("with payments", []), now)).toMatchObject({ segments: 3, bytes: 100, reach: 0 });
});

test("the last configuration shows its own, whatever an older one reports before it ends", async () => {
  const telemetry = createTelemetry({ write: () => undefined });
  const [old, next] = [telemetry.openKeptTelemetry(), telemetry.openKeptTelemetry()];
  const read = async () => {
    const { text } = await telemetry.metrics();
    return text.split("\n").filter((line) => line.startsWith("readout_rollup_bytes{"));
  };
  next.recordRollupBytes("es", 20);
  old.recordRollupBytes("es", 5);
  expect(await read()).toEqual(['readout_rollup_bytes{backend="es"} 20']);
  old.close();
  expect(await read()).toEqual(['readout_rollup_bytes{backend="es"} 20']);
  next.close();
  expect(await read()).toEqual([]);
});

test("a new configuration forgets groups that it does not have", async () => {
  const telemetry = createTelemetry({ write: () => undefined });
  const old = telemetry.openKeptTelemetry();
  old.recordRolled(createMeasureSums()(createMeasure("with payments", createSegments(2, 50, 30n)), now));
  telemetry
    .openKeptTelemetry()
    .recordRolled(createMeasureSums()(createMeasure("alone", createSegments(3, 100, 60n)), now));
  old.close();
  expect((await listMetrics(telemetry)).slice(2)).toEqual([
    `readout_rolled_segments${labels} 3`,
    `readout_rolled_bytes${labels} 100`,
    `readout_rolled_reach_seconds${labels} 60`,
  ]);
});

test("what a configuration keeps is gone when it is closed", async () => {
  const telemetry = createTelemetry({ write: () => undefined });
  const old = telemetry.openKeptTelemetry();
  old.recordRolled(createMeasureSums()(createMeasure("alone", createSegments(3, 100, 60n)), now));
  for (const backend of ["stays", "goes"]) {
    old.recordRollupBytes(backend, 1);
    old.recordMetricCacheBytes(backend, 1);
  }
  const next = telemetry.openKeptTelemetry();
  next.recordRollupBytes("stays", 2);
  old.close();
  const { text } = await telemetry.metrics();
  const kept = text.split("\n").filter((line) => /^readout_(?:rolled|rollup|metric_cache)_/.test(line));
  expect(kept).toEqual([
    'readout_rollup_bytes{backend="stays"} 2',
    `readout_rolled_seconds_total${labels} 0.5`,
    `readout_rolled_documents_total${labels} 10`,
  ]);
});
