// Prometheus 3 with `type-and-unit-labels`: the type and unit of a metric are in the labels `__type__` and `__unit__`,
// which some functions drop and others keep. The answers are the same as without them.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import type { MetricType } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SeriesQuery } from "#src/store/metrics.ts";
import {
  base,
  buildRawFamilies,
  day,
  hour,
  minute,
  printOpenMetrics,
  type RawFamily,
} from "../../conformance/metrics/fixture.ts";
import { listExpectedTagKeys } from "../../conformance/metrics/oracle.ts";
import { measures, verifySeries } from "../../conformance/metrics.ts";
import { type RunningPrometheus, startPrometheus } from "../../servers/prometheus.ts";
import { testIO } from "../../support/io.ts";
import { sendRemoteWrite } from "../../support/prometheus/remote-write.ts";
import { namedPrometheus } from "../selected-servers.ts";

const signal = new AbortController().signal;
const selections: Readonly<Record<string, readonly [MetricType, ...Record<string, string>[]]>> = {
  temperature: ["gauge", { room: "*" }],
  requests_total: ["counter", {}, { host: "*", code: "*" }],
  deploys_total: ["counter", { region: "*" }],
  latency_seconds: ["measurement", {}, { route: "*" }],
  balance: ["measurement", { account: "*" }],
};
const families = buildRawFamilies(false).filter(({ metric }) => Object.hasOwn(selections, metric));
const addTypeLabels = (family: RawFamily): RawFamily => ({
  ...family,
  series: family.series.map((one) => ({
    ...one,
    labels: { ...one.labels, __type__: family.kind, __unit__: "seconds" },
  })),
});
/** A target that declares another type from the half hour on. */
const switched: RawFamily = {
  metric: "switched_total",
  kind: "counter",
  series: ["unknown", "counter"].map((type, n) => ({
    suffix: "",
    labels: { tenant: "shop", __type__: type },
    samples: Array.from({ length: 120 }, (_, at) => [base + n * 30 * minute + at * 15_000, at + n * 120]),
  })),
};

const servers = namedPrometheus().filter(({ name }) => name === "prom3");
describe.runIf(servers.length > 0)("Prometheus with type-and-unit-labels", () => {
  let server: RunningPrometheus;
  let backend: Backend;
  beforeAll(async () => {
    const text = printOpenMetrics([...families.map(addTypeLabels), switched]);
    server = await startPrometheus("prom3", text, undefined, ["type-and-unit-labels"]);
    backend = prometheus.create("prom", prometheus.parseConfig({ url: server.url }), testIO);
  });
  afterAll(async () => {
    await backend?.close();
    await server?.stop();
  });

  const queryOf = (over: Pick<SeriesQuery, "metric"> & Partial<SeriesQuery>): SeriesQuery => ({
    match: { tenant: "shop" },
    tags: {},
    measure: { of: "increment" },
    buckets: { start: base, step: hour, count: 1 },
    lookBack: day,
    pointLimit: 1_000_000,
    ...over,
  });
  const read = async (over: Pick<SeriesQuery, "metric"> & Partial<SeriesQuery>) =>
    (await backend.stores.metrics?.series(queryOf(over), signal)) ?? [];

  test("drops the labels in functions and keeps them in raw samples", async () => {
    const labelsOf = async (query: string): Promise<readonly string[]> => {
      const body = new URLSearchParams({ query, time: String((base + hour) / 1_000) });
      const answer = await (await fetch(`${server.url}/api/v1/query`, { method: "POST", body })).json();
      return Object.keys(Object(answer).data.result[0].metric);
    };
    const some = 'requests_total{tenant="shop",host="steady",code="200"}';
    expect(await labelsOf(`last_over_time(${some}[5m])`)).toContain("__type__");
    expect(await labelsOf(`${some}[5m]`)).toContain("__unit__");
    expect(await labelsOf(`resets(${some}[5m])`)).not.toContain("__type__");
  });

  describe.each(Object.entries(selections))("%s", (metric, [type, ...tagged]) => {
    test("computes every measure from its raw samples", async () => {
      for (const buckets of [
        { start: base, step: minute, count: 60 },
        { start: base - day, step: hour, count: 48 },
        { start: base + 17, step: 3 * hour + 1, count: 1 },
      ]) {
        for (const tags of tagged) {
          for (const measure of measures[type]) {
            const query = queryOf({ metric, tags, measure, buckets });
            await verifySeries(backend.stores.metrics, families, query, signal);
          }
        }
      }
    });

    test("lists neither label as a tag", async () => {
      const keys = await backend.stores.metrics?.tagKeys({ tenant: "shop" }, metric, signal);
      expect(keys).toEqual(listExpectedTagKeys(families, "shop", metric));
      for (const key of ["__type__", "__unit__"]) {
        const [measure = { of: "increment" }] = measures[type];
        expect(await read({ metric, measure, tags: { [key]: "*" } })).toEqual([]);
      }
    });
  });

  test("gives rates for pods and nodes", async () => {
    // Later than all blocks, since servers refuse older samples.
    const at = base + 30 * day;
    const times = Array.from({ length: 21 }, (_, n) => at - 5 * minute + n * 15_000);
    const uid = "12345678-1234-4234-8234-123456789abc";
    const web = { cluster: "c", namespace: "shop", pod: "web-0", node: "n1" };
    const series = (name: string, type: string, labels: object, read: (n: number) => number) => ({
      labels: { __name__: name, __type__: type, ...labels },
      samples: times.map((time, n) => [time, read(n)] as const),
    });
    const cpu = "container_cpu_usage_seconds_total";
    await sendRemoteWrite(server.url, [
      series("kube_pod_info", "gauge", { ...web, uid }, () => 1),
      series(cpu, "counter", { ...web, id: `/kubepods/pod${uid}` }, (n) => 3 * n),
      series(cpu, "counter", { cluster: "c", node: "n1", id: "/" }, (n) => 6 * n),
    ]);
    const query = {
      match: { cluster: "c" },
      snapshots: { start: at, step: minute, count: 1 },
      rowLimit: 10,
    };
    const store = backend.stores.kubernetes;
    const all = async <Row>(batches: AsyncIterable<readonly Row[]> | undefined): Promise<Row[]> =>
      (await Array.fromAsync(batches ?? [])).flat();
    const pods = await all(store?.pods({ ...query, namespaces: [], nodes: [] }, signal));
    expect(pods).toMatchObject([{ pod_name: "web-0", cpu_usage_nano_cores: 0.2e9 }]);
    const nodes = await all(store?.nodes(query, signal));
    expect(nodes).toMatchObject([{ node_name: "n1", cpu_usage_nano_cores: 0.4e9 }]);
  });

  test("refuses a range with a change of type, and is exact on either side", async () => {
    const metric = "switched_total";
    for (const step of [hour, minute]) {
      const buckets = { start: base, step, count: hour / step };
      const answer = read({ metric, buckets });
      await expect(answer).rejects.toMatchObject({ slug: "not_supported_by_backend" });
      await expect(answer).rejects.toThrow("__type__ or __unit__");
    }
    const later = await read({ metric, buckets: { start: base + 40 * minute, step: 10 * minute, count: 2 } });
    expect(later.map(({ values }) => [...values])).toEqual([[40, 40]]);
  });
});
