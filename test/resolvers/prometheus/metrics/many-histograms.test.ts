// Many series are surveyed, put together and combined without holding the event loop up.
import { expect, test } from "vitest";
import type { Measure } from "#src/core/rows.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { buildHistogramQuery, readHistogramFleet } from "../../../support/prometheus/histogram-fleets.ts";
import { createRecordingClient } from "../../../support/prometheus/promql-evaluator.ts";

const minute = 60_000;
const hostCount = 60;
const bounds = ["1", "2", "+Inf"];

function writeHistograms(start: number) {
  return Array.from({ length: hostCount }, (_, n) => String(n)).flatMap((host) =>
    ["", ...bounds].map((le) => ({
      labels: {
        __name__: le === "" ? "h_count" : "h_bucket",
        tenant: "shop",
        host,
        ...(le !== "" && { le }),
      },
      samples: Array.from({ length: 20 }, (_, at): [number, number] => [start + at * minute, at * 10]),
    })),
  );
}

const measure: Measure = { of: "observations", combine: "quantile", quantile: 0.9 };
const signal = new AbortController().signal;

test.each([
  ["of each host", { host: "*" }, hostCount],
  ["of all", {}, 1],
])("histograms %s", async (_, tags, groupCount) => {
  const query = buildHistogramQuery("h", minute, tags, measure);
  const client = createRecordingClient(writeHistograms(query.buckets.start - minute), "open", []);
  let groups: readonly unknown[] = [];
  const turns = await countTurns(async () => {
    groups = await readHistogramFleet(client, query, false, signal);
  });
  expect(groups).toHaveLength(groupCount);
  const series = hostCount * (1 + bounds.length);
  // Last samples and those before are grouped and checked, then surveyed, looked through for gaps and put together.
  // The parts and the groups of the histograms are found, and these are combined.
  expect(turns).toBeGreaterThanOrEqual(7 * series);
});
