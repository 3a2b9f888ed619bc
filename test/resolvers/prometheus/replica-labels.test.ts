// Labels of replicated scrapers, over written series.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { describeReplicaLabels } from "#resolvers/prometheus/replica-labels.ts";
import { sampleRuns } from "../../support/law-runs.ts";
import type { Labels, WrittenSeries } from "../../support/prometheus/kubernetes-exporters.ts";
import { createEvaluator } from "../../support/prometheus/promql-evaluator.ts";

const never = new AbortController().signal;
const now = 1_768_471_200_000;

/** Samples of a counter every 15 s, `delay` after the full quarter of a minute. */
function writeCounter(
  name: string,
  labels: Labels,
  delay: number,
  value: (time: number) => number,
): WrittenSeries {
  const times = Array.from({ length: 40 }, (_, index) => now - 600_000 + index * 15_000 + delay);
  return { labels: { __name__: name, ...labels }, samples: times.map((time) => [time, value(time)]) };
}
const growing =
  (rate: number, from = 0) =>
  (time: number) =>
    from + Math.floor(((time - now + 900_000) / 1_000) * rate);

function describeLabels(series: readonly WrittenSeries[], match: Labels = {}): Promise<readonly string[]> {
  const names = [...new Set(series.map(({ labels }) => labels.__name__ ?? ""))].sort();
  return describeReplicaLabels(createEvaluator(series, "open"), match, names, now, never);
}
const metrics = ["http_requests_total", "http_errors_total"];
const replicated = (label: string, values: readonly string[], names = metrics): WrittenSeries[] =>
  names.flatMap((name) =>
    values.flatMap((value, position) =>
      ["a", "b"].map((instance, target) =>
        writeCounter(
          name,
          { site: "shop", job: "api", instance, [label]: value },
          1_000 + position * 4_000,
          growing(3 + target, 10_000 * target),
        ),
      ),
    ),
  );

describe("describeReplicaLabels", () => {
  test.each(["prometheus_replica", "replica", "__replica__", "scraped_by", "zone"])(
    "names the label %s, its values, and what to do",
    async (label) => {
      const [text, ...others] = await describeLabels(replicated(label, ["p-1", "p-0"]));
      expect(others).toEqual([]);
      expect(text).toContain(`the label ${label} (p-0, p-1) divides equal series`);
      expect(text).toContain("count everything 2 times");
      expect(text).toContain(`match: { ${label}: p-0 }`);
    },
  );

  const inCluster = (cluster: string, values: readonly string[]) =>
    replicated("prometheus_replica", values).map(({ labels, samples }) => ({
      labels: { ...labels, cluster, instance: `${cluster}-${labels.instance}` },
      samples,
    }));
  const withoutLabel = writeCounter("http_requests_total", { job: "plain" }, 0, growing(1));
  test.each([
    ["replicas of their own", inCluster("b", ["b-0", "b-1"])],
    ["one replica", inCluster("b", ["b-0"])],
    ["no replicas", [withoutLabel]],
  ])("forces no replica of a cluster beside another with %s", async (_, others) => {
    const [text] = await describeLabels([...inCluster("a", ["a-0", "a-1"]), ...others]);
    expect(text).toContain("count everything 2 times. Drop the label");
    expect(text).not.toContain("match:");
  });

  test("forces the replica that scrapes all targets", async () => {
    const series = [...inCluster("a", ["p-0", "p-1"]), ...inCluster("b", ["p-1"])];
    expect((await describeLabels(series))[0]).toContain("`match: { prometheus_replica: p-1 }`");
  });

  test("says nothing of one replica that is forced", async () => {
    const series = replicated("prometheus_replica", ["p-0", "p-1"]);
    expect(await describeLabels(series, { prometheus_replica: "p-0" })).toEqual([]);
  });

  test("says nothing of labels of targets", async () => {
    const labels = (value: string): Labels => ({ job: "api", pod: value });
    const series = ["x", "y", "z"].map((pod, index) =>
      writeCounter("http_requests_total", labels(pod), index * 100, growing(1 + index)),
    );
    expect(await describeLabels(series)).toEqual([]);
  });

  test("names the label if counters rest, by its usual name", async () => {
    const series = ["p-0", "p-1"].map((replica, index) =>
      writeCounter("up", { job: "api", replica }, index, () => 1),
    );
    expect(await describeLabels(series)).toHaveLength(1);
    const zones = ["p-0", "p-1"].map((zone, index) =>
      writeCounter("up", { job: "api", zone }, index, () => 1),
    );
    expect(await describeLabels(zones)).toEqual([]);
  });

  test("says nothing of replicas of an application", async () => {
    // They have the usual name, but counters of their own.
    const series = ["0", "1"].map((replica, index) =>
      writeCounter("jobs_total", { job: "worker", replica }, index, growing(1 + index, 5)),
    );
    expect(await describeLabels(series)).toEqual([]);
  });

  test("says nothing of a label of one metric that was scraped a few times", async () => {
    const write = (cache: string, values: readonly number[]) => ({
      labels: { __name__: "readout_cache_requests_total", result: "miss", cache },
      samples: values.map((value, index) => [now - 45_000 + index * 15_000, value] as const),
    });
    const series = [write("mappings", [3, 4, 4]), write("metric_names", [2, 3, 3])];
    expect(await describeLabels(series)).toEqual([]);
  });

  test("says nothing of a label that some series lack, also those of a metric that is one series", async () => {
    const up = writeCounter("up", { job: "api" }, 0, () => 1);
    expect(await describeLabels([...replicated("cache", ["a", "b"]), up])).toEqual([]);
    const others = writeCounter("http_errors_total", { job: "api" }, 0, growing(1));
    expect(await describeLabels([...replicated("cache", ["a", "b"]), others])).toEqual([]);
  });

  test("takes one metric, or values at rest, for no evidence of a label without a usual name", async () => {
    expect(await describeLabels(replicated("zone", ["a", "b"], ["http_requests_total"]))).toEqual([]);
    const names = ["a_total", "b_total", "c_total", "d_total"];
    const resting = (label: string) =>
      names.flatMap((name) =>
        ["x", "y"].map((value, index) => writeCounter(name, { [label]: value }, index, () => 7)),
      );
    expect(await describeLabels(resting("zone"))).toEqual([]);
    expect(await describeLabels(resting("replica"))).toHaveLength(1);
  });

  test("waits for some samples of each series, whatever the name of the label", async () => {
    const series = replicated("replica", ["p-0", "p-1"]);
    const latest = (count: number) =>
      series.map(({ labels, samples }) => ({
        labels,
        samples: samples.filter(([time]) => time <= now).slice(-count),
      }));
    expect(await describeLabels(latest(3))).toEqual([]);
    expect(await describeLabels(latest(4))).toHaveLength(1);
  });

  test.each([
    ["once without a restart", 4_000],
    ["never in the order of time, but has two values at one time", 0],
  ])("says nothing of a counter that falls %s", async (_, delay) => {
    const rising = (from: number) => (time: number) => (time < from ? 3 : 4);
    const series = [
      writeCounter("jobs_total", { replica: "0" }, 0, rising(now - 60_000)),
      writeCounter("jobs_total", { replica: "1" }, delay, rising(now - 45_000)),
    ];
    expect(await describeLabels(series)).toEqual([]);
  });

  test("names the label across a restart of the target", async () => {
    const restarting = (time: number) => (time < now - 100_000 ? growing(5)(time) : growing(5)(time) - 4_000);
    const series = metrics.flatMap((name) =>
      ["p-0", "p-1"].map((ha, index) => writeCounter(name, { job: "api", ha }, index * 4_000, restarting)),
    );
    expect(await describeLabels(series)).toHaveLength(1);
  });

  test("finds the label whatever else the series carry", async () => {
    const label = fc.constantFrom("ha", "cluster_side", "prometheus_replica");
    const targets = fc.uniqueArray(
      fc.record({ job: fc.constantFrom("a", "b"), pod: fc.constantFrom("x", "y", "z") }),
      {
        minLength: 1,
        selector: (target) => JSON.stringify(target),
      },
    );
    await fc.assert(
      fc.asyncProperty(label, targets, fc.integer({ min: 2, max: 3 }), async (name, all, count) => {
        const series = all.flatMap((target, position) =>
          metrics.flatMap((metric) =>
            Array.from({ length: count }, (_, replica) =>
              writeCounter(
                metric,
                { ...target, [name]: String(replica) },
                replica * 3_000,
                growing(1 + position, position * 7_000),
              ),
            ),
          ),
        );
        const found = await describeLabels(series);
        expect(found).toHaveLength(1);
        expect(found[0]).toContain(`the label ${name} (`);
      }),
      { numRuns: sampleRuns(50) },
    );
  });
});
