// The number and size of queries about a cluster, and the report of `readout check`.
import { describe, expect, test } from "vitest";
import { type Expression, printExpression, type Selector } from "#resolvers/prometheus/client/promql.ts";
import type { EvaluationTime } from "#resolvers/prometheus/client/query-request.ts";
import { inspectCluster } from "#resolvers/prometheus/kubernetes/coverage.ts";
import { createKubernetesStore } from "#resolvers/prometheus/kubernetes/kubernetes-store.ts";
import type { ClusterScope, QueryClient } from "#resolvers/prometheus/kubernetes/snapshot-reader.ts";
import type { PodOverviewRow, PodsRow } from "#src/core/rows.ts";
import { base, minute, model } from "../../../conformance/kubernetes-fixture.ts";
import {
  collectSeries,
  expose,
  type Labels,
  type WrittenSeries,
} from "../../../support/prometheus/kubernetes-exporters.ts";
import { createEvaluator } from "../../../support/prometheus/promql-evaluator.ts";
import {
  collectRows,
  ended,
  info,
  key,
  never,
  scope,
  snapshots,
  writePodInfo,
  writeSeries,
} from "./small-cluster.ts";

describe("Kubernetes queries", () => {
  interface SentQuery {
    readonly expression: Expression;
    readonly time: EvaluationTime;
  }
  function recordQueries(
    series: readonly WrittenSeries[],
    { hidesRestarts = false, expressionBytes }: Partial<ClusterScope> = {},
  ) {
    const queries: SentQuery[] = [];
    const inner = createEvaluator(series, "open", hidesRestarts);
    const source: QueryClient = {
      readTraits: async () => ({ ...(await inner.readTraits()), expressionBytes }),
      query: (expression, time, fold, signal) => {
        queries.push({ expression, time });
        return inner.query(expression, time, fold, signal);
      },
    };
    return { queries, source };
  }
  const writeOtelPod = (prefix: string, dot: string): readonly WrittenSeries[] =>
    writeSeries((write, time, age) => {
      const labels = { [`k8s${dot}namespace${dot}name`]: "shop", [`k8s${dot}pod${dot}name`]: "web-0" };
      write(time, `${prefix}cpu${dot}time`, labels, age);
      const network = { ...labels, interface: "eth0", direction: "receive" };
      write(time, `${prefix}network${dot}io`, network, age);
    });
  const listSelectors = (expression: Expression): Selector[] => {
    switch (expression.kind) {
      case "selector":
        return [expression];
      case "range":
      case "aggregate":
        return listSelectors(expression.of);
      case "call":
        return expression.arguments.flatMap(listSelectors);
      case "binary":
        return [...listSelectors(expression.left), ...listSelectors(expression.right)];
      case "number":
        return [];
    }
  };

  test("have every forced label in every selector, also for `check`", async () => {
    const match = { cluster: "model", "odd.label": 'a"b\\' };
    const { source, queries } = recordQueries(expose(model, match));
    const store = createKubernetesStore("prom", source);
    const query = { ...scope, match, snapshots: { ...snapshots, count: 30 } };
    await collectRows(store.nodes(query, never));
    await collectRows(store.pods({ ...query, namespaces: ["shop"], nodes: [], pods: ["web-0"] }, never));
    await collectRows(store.overview({ ...ended, match, namespaces: [], text: "" }, never));
    await inspectCluster(source, match, base, never);
    const sent = queries.flatMap(({ expression }) => listSelectors(expression));
    expect(sent.length).toBeGreaterThan(50);
    for (const { matchers } of sent) {
      for (const [label, value] of Object.entries(match)) {
        expect(matchers).toContainEqual({ label, operator: "=", value });
      }
    }
  });

  const victoriaMetrics = 16_384;
  test.each<[string, number, number | undefined, boolean]>([
    ["short", 250, undefined, true],
    ["short", 251, undefined, false],
    ["long", 250, undefined, true],
    ["short", 100, victoriaMetrics, true],
    ["long", 3, victoriaMetrics, true],
    ["long", 20, victoriaMetrics, false],
  ])(
    "name pods of %s names, %d of them, to a server that takes %j bytes: %s",
    async (length, count, expressionBytes, isSent) => {
      const { source, queries } = recordQueries(expose(model, scope.match), { expressionBytes });
      const others = Array.from({ length: count - 1 }, (_, n) =>
        `none-${n}`.padEnd(length === "long" ? 253 : 0, "x"),
      );
      const store = createKubernetesStore("prom", source);
      const pods = ["web-0", ...others];
      const rows = await collectRows(store.pods({ ...scope, namespaces: [], nodes: [], pods }, never));
      expect(new Set(rows.map(({ pod_name }) => pod_name))).toEqual(new Set(["web-0"]));
      const sent = queries.flatMap(({ expression }) => listSelectors(expression));
      expect(sent.some(({ matchers }) => matchers.some(({ value }) => value.includes("none-1")))).toBe(
        isSent,
      );
      for (const { expression } of queries)
        expect(printExpression(expression).length).toBeLessThanOrEqual(expressionBytes ?? 1_000_000);
    },
  );

  test("name pods that are gone in as many parts as a server needs", async () => {
    const { write, series } = collectSeries({ cluster: "c" });
    const names = Array.from({ length: 60 }, (_, n) => `p-${String(n).padStart(2, "0")}`.padEnd(253, ".a"));
    for (const pod of names) write(base, "kube_pod_info", { ...info, pod }, 1);
    const query = { ...ended, to: base + 60 * minute, namespaces: [], text: "" };
    const ask = async (expressionBytes: number | undefined) => {
      const { source, queries } = recordQueries(series(), { expressionBytes });
      const rows = await collectRows(createKubernetesStore("prom", source).overview(query, never));
      expect(rows.map(({ pod_name }) => pod_name)).toEqual(names);
      return Math.max(...queries.map(({ expression }) => printExpression(expression).length));
    };
    expect(await ask(undefined)).toBeGreaterThan(victoriaMetrics);
    expect(await ask(victoriaMetrics)).toBeLessThanOrEqual(victoriaMetrics);
  });

  test.each(["nodes", "pods", "overview"] as const)(
    "refuse %s of a server that is replaced meanwhile",
    async (kind) => {
      const { source } = recordQueries(expose(model, scope.match));
      let isReplaced = false;
      const replaced: QueryClient = {
        readTraits: async (signal) => ({
          ...(await source.readTraits(signal)),
          edge: isReplaced ? "closed" : "open",
        }),
        query: (...query) => {
          isReplaced = true;
          return source.query(...query);
        },
      };
      const store = createKubernetesStore("prom", replaced);
      const ask = (match: Labels) => ({
        nodes: () => collectRows(store.nodes({ ...scope, match }, never)),
        pods: () => collectRows(store.pods({ ...scope, match, namespaces: [], nodes: [] }, never)),
        overview: () => collectRows(store.overview({ ...ended, match, namespaces: [], text: "" }, never)),
      });
      await expect(ask(scope.match)[kind]()).rejects.toThrow("replaced by another version");
      isReplaced = false;
      await expect(ask({ cluster: "empty" })[kind]()).rejects.toThrow("replaced by another version");
    },
  );

  test("name every metric exactly, also for `check`, in a bounded number of requests", async () => {
    // Google's managed Prometheus refuses other matchers of the name.
    const series = [...expose(model, scope.match), ...writeOtelPod("k8s.pod.", ".")];
    const { source, queries } = recordQueries(series);
    const strict: QueryClient = {
      ...source,
      query: (expression, ...rest) => {
        for (const { matchers } of listSelectors(expression)) {
          const names = matchers.filter(({ label }) => label === "__name__");
          if (names.length !== 1 || names[0]?.operator !== "=") throw new Error("422: not an exact name");
        }
        return source.query(expression, ...rest);
      },
    };
    const store = createKubernetesStore("prom", strict);
    const query = { ...scope, snapshots: { ...snapshots, count: 5 } };
    const nodes = await collectRows(store.nodes(query, never));
    const nodeQueries = queries.splice(0).length;
    const pods = await collectRows(store.pods({ ...query, namespaces: [], nodes: [] }, never));
    const podQueries = queries.splice(0).length;
    await collectRows(store.overview({ ...ended, namespaces: [], text: "" }, never));
    const { problems } = await inspectCluster(strict, scope.match, base, never);
    expect([nodes.length > 0, pods.length > 0, problems]).toEqual([true, true, []]);
    expect(nodeQueries).toBeLessThan(30);
    expect(podQueries).toBeLessThan(50);
  });

  test("have labels with dots only where a name has dots", async () => {
    const printed = async (series: readonly WrittenSeries[]): Promise<string> => {
      const { source, queries } = recordQueries(series);
      const store = createKubernetesStore("prom", source);
      await collectRows(store.pods({ ...scope, namespaces: ["shop"], nodes: [] }, never));
      await collectRows(store.nodes(scope, never));
      await inspectCluster(source, scope.match, base, never);
      return queries.map(({ expression }) => printExpression(expression)).join("\n");
    };
    const quoted = '"k8s.pod.name"';
    expect(await printed([...writeSeries(writePodInfo), ...writeOtelPod("k8s_pod_", "_")])).not.toContain(
      quoted,
    );
    expect(await printed([...writeSeries(writePodInfo), ...writeOtelPod("k8s.pod.", ".")])).toContain(quoted);
  });

  test.each([false, true])("ask for restarts only if the source shows them (hidden: %s)", async (hides) => {
    const { source, queries } = recordQueries(expose(model, scope.match), { hidesRestarts: hides });
    const store = createKubernetesStore("prom", source);
    await collectRows(store.nodes(scope, never));
    await collectRows(store.pods({ ...scope, namespaces: [], nodes: [] }, never));
    const sent = queries.filter(({ expression }) => printExpression(expression).includes("resets("));
    expect(sent).toHaveLength(hides ? 0 : 2);
  });

  test("cost the source one count if the rows exceed the limit", async () => {
    const { source, queries } = recordQueries(writeSeries(writePodInfo));
    const rows = createKubernetesStore("prom", source).pods(
      { ...scope, rowLimit: 0, namespaces: [], nodes: [] },
      never,
    );
    await expect(collectRows(rows)).rejects.toMatchObject({ slug: "result_too_large" });
    expect(queries).toHaveLength(1);
  });

  test("have at most 11,000 evaluation times each", async () => {
    const { write, series } = collectSeries({ cluster: "c" });
    for (const [pod, minutes] of [
      ["first", -24_000],
      ["second", -12_001],
      ["last", 0],
    ] as const) {
      write(base + minutes * minute, "kube_pod_info", { ...info, pod }, 1);
    }
    const { source, queries } = recordQueries(series());
    const store = createKubernetesStore("prom", source);
    const long = { start: base - 25_000 * minute, step: minute, count: 30_000 };
    const query = { ...scope, snapshots: long };
    const whole = { ...ended, from: long.start, to: long.start + 29_999 * minute };
    const name = ({ timestamp, pod_name: pod }: PodsRow | PodOverviewRow) => [
      (timestamp - base) / minute,
      pod,
    ];
    expect((await collectRows(store.pods({ ...query, namespaces: [], nodes: [] }, never))).map(name)).toEqual(
      [
        [-24_000, "first"],
        [-23_999, "first"],
        [-12_001, "second"],
        [-12_000, "second"],
        [0, "last"],
        [1, "last"],
      ],
    );
    expect(
      (await collectRows(store.overview({ ...whole, namespaces: [], text: "" }, never))).map(name),
    ).toEqual([
      [-23_999, "first"],
      [-12_000, "second"],
      [1, "last"],
    ]);
    for (const { time } of queries) {
      const count = "at" in time ? 1 : (time.end - time.start) / time.step + 1;
      expect(count).toBeLessThanOrEqual(11_000);
    }
  });

  test("give the same rows wherever slices are cut", async () => {
    const series = writeSeries((write, time, age) => {
      for (let pod = 0; pod < 700; pod += 1) {
        const labels = { namespace: "many", pod: `p-${String(pod).padStart(3, "0")}` };
        write(time, "kube_pod_info", { ...labels, uid: `u-${pod}` }, 1);
        const network = { ...labels, id: "/x", image: "pause", interface: "eth0" };
        write(time, "container_network_receive_bytes_total", network, age * (pod + 1));
      }
    });
    const { source, queries } = recordQueries(series);
    const query = {
      ...scope,
      snapshots: { ...snapshots, start: base - 8 * minute, count: 9 },
      rowLimit: 10_000,
    };
    const rows = await collectRows(
      createKubernetesStore("prom", source).pods({ ...query, namespaces: [], nodes: [] }, never),
    );
    expect(queries.filter(({ time }) => "start" in time).length).toBeGreaterThan(20);
    const expected = Array.from({ length: 9 }, (_, at) =>
      Array.from({ length: 700 }, (_, pod) => [base + (at - 8) * minute, 60 * (pod + 1)]),
    ).flat();
    expect(rows.map((row) => [row.timestamp, row.network_rx_bytes])).toEqual(expected);
  });

  test("abort the others if one fails, and report its error", async () => {
    const failure = new Error("down");
    const source = createEvaluator(writeSeries(writePodInfo), "open");
    let queries = 0;
    let ended = 0;
    const flaky: QueryClient = {
      readTraits: source.readTraits,
      query: (expression, time, fold, signal) => {
        queries += 1;
        if (queries === 1) return source.query(expression, time, fold, signal);
        if (queries === 5) return Promise.reject(failure);
        return new Promise((_, reject) => {
          signal.addEventListener("abort", () => {
            ended += 1;
            reject(signal.reason);
          });
        });
      },
    };
    const rows = createKubernetesStore("prom", flaky).pods({ ...scope, namespaces: [], nodes: [] }, never);
    await expect(collectRows(rows)).rejects.toBe(failure);
    expect(ended).toBe(queries - 2);
    expect(queries).toBeLessThan(10);
  });
});

describe("check", () => {
  test("reports the exporters found and the fields without a source", async () => {
    const source = createEvaluator(
      writeSeries((write, time) => {
        writePodInfo(write, time);
        write(time, "pod_memory_working_set_bytes", key, 1);
      }),
      "open",
    );
    const { found, limitations, problems } = await inspectCluster(source, { cluster: "c" }, base, never);
    expect(found).toEqual(["kube-state-metrics: 1 pods", "kubelet resource metrics: 1 pods"]);
    expect(limitations).toContain("pods: no kube_pod_start_time: pod_uptime_seconds is 0");
    expect(limitations.filter((text) => text.includes("memory_"))).toEqual([
      "pods: memory_rss_bytes is 0: none of container_memory_rss, k8s.pod.memory.rss",
      "pods: memory_usage_bytes is 0: none of container_memory_usage_bytes, k8s.pod.memory.usage",
      "pods: memory_page_faults is 0: none of container_memory_failures_total, k8s.pod.memory.page_faults",
      "pods: memory_major_page_faults is 0: none of container_memory_failures_total, k8s.pod.memory.major_page_faults",
    ]);
    expect(problems).toEqual([
      "no kube_node_info, cAdvisor or node exporter with the forced labels: nodes are empty",
    ]);
  });

  test("reports a kube-state-metrics scraped without honor_labels", async () => {
    const itself = { namespace: "monitoring", pod: "kube-state-metrics-0" };
    const found = async (labels: (pod: string) => Labels) => {
      const series = writeSeries((write, time) => {
        for (const pod of ["a", "b", "c"]) write(time, "kube_pod_info", { ...labels(pod), uid: pod }, 1);
        write(time, "kube_node_info", { node: "n1" }, 1);
      });
      const source = createEvaluator(series, "open");
      return (await inspectCluster(source, { cluster: "c" }, base, never)).problems;
    };
    const moved = (pod: string) => ({ exported_namespace: "shop", exported_pod: pod });
    expect(await found((pod) => ({ ...itself, ...moved(pod) }))).toEqual([
      "kube_pod_info names 3 pods by exported_pod, and 1 by pod: kube-state-metrics has to be scraped with honor_labels",
    ]);
    // Restored by relabelling.
    expect(await found((pod) => ({ ...moved(pod), namespace: "shop", pod }))).toEqual([]);
    expect(await found((pod) => ({ namespace: "shop", pod }))).toEqual([]);
  });

  test("reports no gaps if everything is exported", async () => {
    const source = createEvaluator(expose(model, { cluster: "c" }), "open");
    const report = await inspectCluster(source, { cluster: "c" }, base + 20 * minute, never);
    expect(report).toMatchObject({ limitations: [], problems: [] });
    expect(report.found).toHaveLength(4);
  });
});
