// Nodes and pods of several backends: of a cluster whose objects are divided between two stores, and of one that both watch, the
// answers are those of one store. And what is refused.
import { describe, expect, test } from "vitest";
import { createMemoryKubernetes } from "#resolvers/memory/stores/kubernetes-store.ts";
import type { PodsRow } from "#src/core/rows.ts";
import { createFederatedKubernetes } from "#src/federation/federated-kubernetes.ts";
import type { KubernetesStore } from "#src/store/kubernetes.ts";
import type { ForcedLabels } from "#src/store/metrics.ts";
import { base, minute, model, neighbour, seeded } from "../conformance/kubernetes-fixture.ts";
import { observeModel } from "../conformance/observed-cluster.ts";

const labels = { model: { cluster: "model" }, neighbour: { cluster: "neighbour" } } as const;

type Holds = (kind: "node" | "pod", name: string, time: number) => boolean;

function createStore(holds: Holds): KubernetesStore {
  return createMemoryKubernetes((match, time) => {
    const cluster = { model, neighbour }[match.cluster ?? ""];
    if (cluster === undefined || time > seeded.to) return undefined;
    // The rows of pods have figures of their nodes.
    const { nodes, pods } = observeModel(cluster, time);
    return {
      nodes: nodes.filter(({ node_name: name }) => holds("node", name, time)),
      pods: pods.filter((pod) => holds("pod", `${pod.pod_namespace}/${pod.pod_name}`, time)),
    };
  });
}

/** Places have forced labels of their own: those of a query choose the store. */
function routeByMatch(stores: readonly KubernetesStore[], replica?: string): KubernetesStore {
  const of = (match: ForcedLabels) =>
    createFederatedKubernetes(stores.map((store, at) => ({ backend: `b${at}`, store, match, replica })));
  return {
    nodes: (query, signal) => of(query.match).nodes(query, signal),
    pods: (query, signal) => of(query.match).pods(query, signal),
    overview: (query, signal) => of(query.match).overview(query, signal),
  };
}

const isEven = (name: string): boolean =>
  [...name].reduce((sum, one) => sum + (one.codePointAt(0) ?? 0), 0) % 2 === 0;

const { signal } = new AbortController();
const snapshots = { start: base, step: 5 * minute, count: 9 };

async function collect<Row>(rows: AsyncIterable<readonly Row[]>): Promise<readonly Row[]> {
  return (await Array.fromAsync(rows)).flat();
}

/** The answers to some questions of each kind, for both clusters. */
async function askAll(store: KubernetesStore) {
  const answers: unknown[] = [];
  for (const match of [labels.model, labels.neighbour]) {
    const scope = { match, snapshots, rowLimit: 1_000 };
    const range = { match, from: base, to: base + 40 * minute, rowLimit: 1_000 };
    const anyPod = { namespaces: [], nodes: [] };
    answers.push(
      await collect(store.nodes(scope, signal)),
      await collect(store.pods({ ...scope, ...anyPod }, signal)),
      await collect(store.pods({ ...scope, ...anyPod, nodes: ["n2"], state: "Running" }, signal)),
      await collect(store.overview({ ...range, namespaces: [], text: "" }, signal)),
      await collect(store.overview({ ...range, namespaces: ["shop"], text: "n1" }, signal)),
    );
  }
  return answers;
}

test("objects divided between two stores are answered as by one", async () => {
  const stores = [true, false].map((even) => createStore((_, name) => isEven(name) === even));
  const expected = await askAll(createStore(() => true));
  expect(await askAll(routeByMatch(stores))).toEqual(expected);
  expect(expected.every((rows) => Array.isArray(rows) && rows.length > 0)).toBe(true);
});

test("of two stores that watch one cluster each object is answered once", async () => {
  const stores = [createStore((_, name) => isEven(name)), createStore(() => true)];
  expect(await askAll(routeByMatch(stores, "replica"))).toEqual(await askAll(createStore(() => true)));
});

test("the limit is on the rows of both together, and a reader may leave", async () => {
  const store = routeByMatch([true, false].map((even) => createStore((_, name) => isEven(name) === even)));
  const query = { match: labels.model, snapshots, namespaces: [], nodes: [] };
  const { length } = await collect(store.pods({ ...query, rowLimit: 1_000 }, signal));
  expect(await collect(store.pods({ ...query, rowLimit: length }, signal))).toHaveLength(length);
  await expect(collect(store.pods({ ...query, rowLimit: length - 1 }, signal))).rejects.toMatchObject({
    slug: "result_too_large",
    details: { limit: length - 1 },
  });
  const leaving = new AbortController();
  const rows = store.pods({ ...query, rowLimit: 1_000 }, leaving.signal)[Symbol.asyncIterator]();
  await rows.next();
  const reason = new Error("left");
  leaving.abort(reason);
  await expect(rows.next()).rejects.toBe(reason);
});

describe("equal names in two stores", () => {
  const scope = { match: labels.model, snapshots, rowLimit: 1_000 };

  test("are refused without a replica, by both backends", async () => {
    const store = routeByMatch([createStore(() => true), createStore(() => true)]);
    const refusal = { slug: "not_supported_by_backend", details: { backend: "b0, b1" } };
    const pods = store.pods({ ...scope, namespaces: [], nodes: [] }, signal);
    await expect(collect(pods)).rejects.toMatchObject(refusal);
    await expect(collect(store.nodes(scope, signal))).rejects.toMatchObject(refusal);
    const range = { match: labels.model, from: base, to: base + 5 * minute, rowLimit: 1_000 };
    const overview = store.overview({ ...range, namespaces: [], text: "" }, signal);
    await expect(collect(overview)).rejects.toMatchObject(refusal);
  });

  test("are refused of replicas of different clusters, and not of scrapers that `match` names", async () => {
    const whole = createStore(() => true);
    const open = (first: ForcedLabels, second: ForcedLabels) => {
      const nodes: KubernetesStore["nodes"] = (query, own) =>
        whole.nodes({ ...query, match: labels.model }, own);
      const places = [first, second].map((match, at) => {
        return { backend: `b${at}`, store: { ...whole, nodes }, match, replica: "replica" };
      });
      return collect(createFederatedKubernetes(places).nodes(scope, signal));
    };
    const refusal = { slug: "not_supported_by_backend", details: { backend: "b0, b1" } };
    await expect(open({ cluster: "eu" }, { cluster: "us" })).rejects.toMatchObject(refusal);
    const rows = await collect(whole.nodes(scope, signal));
    expect(await open({ cluster: "eu", replica: "r1" }, { cluster: "eu", replica: "r2" })).toEqual(rows);
    expect(await open({ cluster: "eu" }, {})).toEqual(rows);
  });

  test("of replicas the first one's row decides what a filter accepts", async () => {
    // The second one still sees a pod on a node of which the first one knows better.
    const stores = [createStore(() => true), createStore((_, __, time) => time >= base)];
    const store = routeByMatch(stores, "replica");
    for (const state of ["Running", "Failed", "Pending"] as const) {
      const query = { ...scope, namespaces: [], nodes: [], state };
      expect(await collect(store.pods(query, signal))).toEqual(
        await collect(createStore(() => true).pods(query, signal)),
      );
    }
  });
});

describe("pods in one store and their usage in another", () => {
  const scope = { match: labels.model, snapshots, rowLimit: 1_000 };
  const anyPod = { ...scope, namespaces: [], nodes: [] };
  const whole = createStore(() => true);
  const used = createStore(() => false);
  const empty = (rows: readonly PodsRow[]) =>
    rows.map((row) => ({ ...row, ...Object.fromEntries(usage.map((name) => [name, 0])) }));
  const usage = [
    "cpu_usage_nano_cores",
    "cpu_usage_core_nano_seconds",
    "memory_usage_bytes",
    "memory_working_set_bytes",
    "memory_rss_bytes",
  ];
  /** Has the rows of `whole` without usage. */
  const unused: KubernetesStore = {
    ...whole,
    async *pods(query, own) {
      for await (const rows of whole.pods(query, own)) yield empty(rows);
    },
  };
  const withOrphans = (store: KubernetesStore, isOrphan = (_: PodsRow) => true): KubernetesStore => ({
    ...store,
    listOrphanedUsage: async (query) => {
      const rows = await collect(whole.pods({ ...query, nodes: [] }, signal));
      return rows.filter((row) => row.memory_usage_bytes > 0 && isOrphan(row));
    },
  });
  const refusal = { slug: "not_supported_by_backend", message: expect.stringContaining("its usage in") };

  test.each([
    ["other places", undefined],
    ["replicas", "replica"],
  ])("are refused, as %s", async (_, replica) => {
    for (const stores of [
      [unused, withOrphans(used)],
      [withOrphans(used), unused],
    ]) {
      const pods = routeByMatch(stores, replica).pods(anyPod, signal);
      await expect(collect(pods)).rejects.toMatchObject(refusal);
    }
  });

  test("are answered by the replica with usage where the first one lacks that of some rows", async () => {
    const rows = await collect(whole.pods(anyPod, signal));
    const [missed] = rows.filter(({ memory_usage_bytes: bytes }) => bytes > 0);
    const sometimes: KubernetesStore = {
      ...whole,
      async *pods(query, own) {
        for await (const batch of whole.pods(query, own))
          yield batch.map((row) => (row.pod_name === missed?.pod_name ? (empty([row])[0] ?? row) : row));
      },
    };
    for (const stores of [
      [sometimes, whole],
      [whole, sometimes],
      [unused, whole],
    ]) {
      const pair = routeByMatch(stores, "replica");
      expect(await collect(pair.pods(anyPod, signal))).toEqual(rows);
      // Each pod by its name has the rows that it has among all.
      for (const pod of new Set(rows.map(({ pod_name }) => pod_name)))
        expect(await collect(pair.pods({ ...anyPod, pods: [pod] }, signal))).toEqual(
          rows.filter(({ pod_name }) => pod_name === pod),
        );
    }
  });

  test("are answered where usage is of pods that nobody else has, or a replica has both", async () => {
    const rows = await collect(whole.pods(anyPod, signal));
    const even = createStore((_, name) => isEven(name));
    const others = withOrphans(used, ({ pod_namespace: namespace, pod_name: name }) => {
      return !isEven(`${namespace}/${name}`);
    });
    expect(await collect(routeByMatch([even, others]).pods(anyPod, signal))).toEqual(
      await collect(even.pods(anyPod, signal)),
    );
    expect(await collect(routeByMatch([whole, withOrphans(used)], "replica").pods(anyPod, signal))).toEqual(
      rows,
    );
  });
});

test("rows that are still read are given up where the usage of another place cannot be", async () => {
  let isGivenUp = false;
  const store = createStore(() => true);
  const waiting: KubernetesStore = {
    ...store,
    async *pods(_, own) {
      const ended = Promise.withResolvers<void>();
      own.addEventListener("abort", () => {
        isGivenUp = true;
        ended.resolve();
      });
      await ended.promise;
      yield [];
    },
  };
  const failing: KubernetesStore = {
    ...store,
    async *pods() {},
    listOrphanedUsage: () => Promise.reject(new Error("down")),
  };
  const places = [waiting, failing].map((own, at) => ({
    backend: `b${at}`,
    store: own,
    match: {},
    replica: undefined,
  }));
  const query = { match: {}, snapshots, rowLimit: 10, namespaces: [], nodes: [] };
  await expect(collect(createFederatedKubernetes(places).pods(query, signal))).rejects.toThrow("down");
  expect(isGivenUp).toBe(true);
});
