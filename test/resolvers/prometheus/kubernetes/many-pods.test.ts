// The pods of a large cluster are joined without holding the event loop up.
import { expect, test } from "vitest";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { info, readOverview, readPods, writeSeries } from "./small-cluster.ts";

const podCount = 60;
const names = Array.from({ length: podCount }, (_, n) => `web-${String(n).padStart(2, "0")}`);
const series = writeSeries((write, time) => {
  for (const pod of names.toReversed()) write(time, "kube_pod_info", { ...info, pod, uid: pod }, 1);
});

test.each([
  ["the overview", "", names],
  ["an overview without rows", "no such pod", []],
] as const)("%s is joined in turns, pod by pod", async (_, text, expected) => {
  let found: readonly string[] = [];
  const turns = await countTurns(async () => {
    found = (await readOverview(series, { text })).map(({ pod_name: name }) => name);
  });
  expect(found).toEqual(expected);
  // Each pod is grouped by its two series and then printed.
  expect(turns).toBeGreaterThanOrEqual(3 * podCount);
});

test("the pods of a snapshot are joined in turns, pod by pod", async () => {
  let found: readonly string[] = [];
  const turns = await countTurns(async () => {
    found = (await readPods(series)).map(({ pod_name: name }) => name);
  });
  expect(found).toEqual(names);
  expect(turns).toBeGreaterThanOrEqual(3 * podCount);
});
