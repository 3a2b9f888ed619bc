// How the series of a published visual are named: by what tells them apart.
import { expect, test } from "vitest";
import { formatLabel, nameSeries } from "#src/console/metrics/series-label.js";

const one = { id: "i", name: "cpu", tags: { host: "a" }, field: "gauge", min: 1, max: 2, data: [] };
const label = (...all: readonly (typeof one)[]) => {
  const { series, isNamed } = nameSeries(all);
  return series.map((named) => formatLabel(named, isNamed));
};

test("is their tags, and the metric where there are none", () => {
  expect(label(one, { ...one, tags: { host: "b" } })).toEqual(["host=a", "host=b"]);
  expect(label({ ...one, tags: {} as typeof one.tags })).toEqual(["cpu"]);
});

test("has the metric where there are several", () => {
  expect(label(one, { ...one, name: "memory" })).toEqual(["cpu host=a", "memory host=a"]);
});

test("has metric and field where there are several fields", () => {
  expect(label({ ...one, field: "mean" }, { ...one, field: "p_90" })).toEqual([
    "cpu mean host=a",
    "cpu p_90 host=a",
  ]);
});
