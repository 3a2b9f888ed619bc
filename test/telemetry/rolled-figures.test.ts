import { expect, test } from "vitest";
import { createTelemetry } from "#src/telemetry/telemetry.ts";

test("the figures of a kind are those of all its groups", async () => {
  const { recordRolled, metrics } = createTelemetry({ write: () => undefined });
  const step = { backend: "es", site: "shop", kind: "site_edges", took: 500, documents: 10 };
  recordRolled({ ...step, group: "alone", segments: 3, bytes: 100, reach: 60_000 });
  recordRolled({ ...step, group: "with payments", segments: 2, bytes: 50, reach: 30_000 });
  recordRolled({ ...step, group: "alone", segments: 4, bytes: 120, reach: 90_000 });
  const { text } = await metrics();
  const labels = '{backend="es",site="shop",kind="site_edges"}';
  expect(text.split("\n").filter((line) => line.startsWith("readout_rolled_"))).toEqual([
    `readout_rolled_seconds_total${labels} 1.5`,
    `readout_rolled_documents_total${labels} 30`,
    `readout_rolled_segments${labels} 6`,
    `readout_rolled_bytes${labels} 170`,
    `readout_rolled_reach_seconds${labels} 30`,
  ]);
});
