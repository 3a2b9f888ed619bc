// What every Kubernetes store must do, run against each of them on one model cluster, with another of the same names
// under other forced labels.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Refused } from "#src/core/errors.ts";
import { type Buckets, podPhases } from "#src/core/rows.ts";
import type { KubernetesStore, OverviewFilter, PodFilter } from "#src/store/kubernetes.ts";
import type { ForcedLabels } from "#src/store/metrics.ts";
import {
  base,
  expectNodes,
  expectOverview,
  expectPods,
  minute,
  model,
  neighbour,
  type OverviewRange,
  type Scrape,
} from "./kubernetes-fixture.ts";

interface Subject {
  readonly name: string;
  readonly scrape: Scrape;
  readonly start: () => Promise<Running>;
}
interface Running {
  readonly store: KubernetesStore;
  /** The forced labels of `model` and `neighbour`. */
  readonly labels: Readonly<Record<"model" | "neighbour", ForcedLabels>>;
  readonly stop: () => Promise<void>;
}

const whole: Buckets = { start: base, step: minute, count: 43 };
const rangeOf = ({ start, step, count }: Buckets): OverviewRange => ({
  from: start,
  to: start + (count - 1) * step,
});
const unfiltered = { namespaces: [], nodes: [] } as const;

export function kubernetesStoreSuite({ name, scrape, start }: Subject): void {
  describe(`${name}: Kubernetes store`, () => {
    let running: Running;
    beforeAll(async () => {
      running = await start();
    });
    afterAll(() => running.stop());

    const never = (): AbortSignal => new AbortController().signal;
    interface Options {
      readonly tenantFilter?: ForcedLabels;
      readonly snapshots?: Buckets;
      readonly rowLimit?: number;
    }
    const scope = ({
      tenantFilter: match = running.labels.model,
      snapshots = whole,
      rowLimit = 100_000,
    }: Options) => ({
      match,
      snapshots,
      rowLimit,
    });
    const nodes = (options: Options = {}, node?: string) =>
      collect(running.store.nodes({ ...scope(options), node }, never()));
    const pods = (options: Options = {}, filter: Partial<PodFilter> = {}) =>
      collect(running.store.pods({ ...scope(options), ...unfiltered, ...filter }, never()));
    const overview = (options: Options = {}, filter: Partial<OverviewFilter> = {}) => {
      const { tenantFilter: match = running.labels.model, snapshots = whole, rowLimit = 100_000 } = options;
      const query = { match, ...rangeOf(snapshots), rowLimit, namespaces: [], text: "", ...filter };
      return collect(running.store.overview(query, never()));
    };

    describe.each<[string, Buckets]>([
      ["minutes", whole],
      ["five minutes", { start: base, step: 5 * minute, count: 9 }],
      ["one moment", { start: base + 12 * minute, step: minute, count: 1 }],
      ["the end and hours after", { start: base + 44 * minute, step: minute, count: 240 }],
    ])("rows of %s", (_, snapshots) => {
      test("reads nodes", async () => {
        expect(await nodes({ snapshots })).toEqual(expectNodes(model, snapshots, scrape));
      });
      test("reads pods", async () => {
        expect(await pods({ snapshots })).toEqual(expectPods(model, snapshots, scrape));
      });
      test("reads the overview", async () => {
        expect(await overview({ snapshots })).toEqual(expectOverview(model, rangeOf(snapshots), scrape));
      });
    });

    test.each<[string, OverviewRange]>([
      ["hours, of which pods lived some minutes", { from: base - 1_000 * minute, to: base + 200 * minute }],
      ["days", { from: base - 9_000 * minute, to: base + 4_000 * minute + 31_000 }],
      ["a part of a minute", { from: base + 12 * minute + 10_000, to: base + 12 * minute + 50_000 }],
      ["one instant", { from: base + 12 * minute + 10_001, to: base + 12 * minute + 10_001 }],
      ["minutes with parts of others", { from: base + 30_000, to: base + 21 * minute + 17_000 }],
      ["a pod's last minutes", { from: base + 20 * minute, to: base + 24 * minute + 59_999 }],
      ["what began within the last minute", { from: base - minute, to: base + minute + 30_000 }],
    ])("the overview of %s misses no pod", async (_, { from, to }) => {
      const { store, labels } = running;
      const query = { match: labels.model, from, to, rowLimit: 100_000, namespaces: [], text: "" };
      const rows = expectOverview(model, { from, to }, scrape);
      expect(rows.length).toBeGreaterThan(5);
      expect(await collect(store.overview(query, never()))).toEqual(rows);
    });

    test("reads nothing from long before and long after the samples", async () => {
      for (const start of [base - 1_000 * minute, base + 1_000 * minute]) {
        const snapshots = { start, step: minute, count: 60 };
        expect([
          await nodes({ snapshots }),
          await pods({ snapshots }),
          await overview({ snapshots }),
        ]).toEqual([[], [], []]);
      }
    });

    test.each(["n2", "new-name", "N2", "n", "n.*"])("reads the nodes named %j", async (wanted) => {
      const rows = expectNodes(model, whole, scrape);
      expect(await nodes({}, wanted)).toEqual(rows.filter(({ node_name }) => node_name === wanted));
    });

    test.each<Partial<PodFilter>>([
      { namespaces: ["shop"] },
      { namespaces: ["blog", "kube-system", "blog"] },
      { pods: ["api-1"] },
      { pods: ["api-1", "web-0", "none"] },
      { pods: ["web-0"], namespaces: ["shop"] },
      { pods: ["web"] },
      { nodes: ["n2", "new-name"] },
      { nodes: [""] },
      ...podPhases.map((state) => ({ state })),
      { namespaces: ["shop"], state: "Failed" },
      { namespaces: ["blog"], nodes: ["n1"], pods: ["api-1"], state: "Running" },
      { namespaces: ["shop|blog"] },
      { namespaces: [".*"] },
      { namespaces: ['shop"} or kube_pod_info{x="'], pods: ["a\\b\n"] },
      { namespaces: [""] },
      { namespaces: ["shop", ...Array.from({ length: 400 }, (_, n) => `none-${n}`)] },
      { pods: ["web-0", ...Array.from({ length: 400 }, (_, n) => `none-${n}`)] },
    ])("pods by %j", async (filter) => {
      const { namespaces = [], nodes = [], pods: names = [], state } = filter;
      const rows = expectPods(model, whole, scrape).filter(
        (row) =>
          (namespaces.length === 0 || namespaces.includes(row.pod_namespace)) &&
          (nodes.length === 0 || nodes.includes(row.node_name)) &&
          (names.length === 0 || names.includes(row.pod_name)) &&
          (state === undefined || row.state === state),
      );
      expect(await pods({}, filter)).toEqual(rows);
    });

    test.each<[text: string, pods: readonly string[]]>([
      ["web", ["web-0"]],
      ["WEB-0", ["web-0"]],
      ["BLOG", ["api-1", "evicted-1", "image-1", "lost-1"]],
      ["new-NAME", ["job-1"]],
      ["nightly", ["job-2"]],
      ["statefulset", []],
      ["color=RED", ["lost-1"]],
      ["color=blue", []],
      ["color: red", []],
      ["tier=front=end", ["api-1"]],
      ["version=2", ["web-0"]],
      ["n2", ["agent-x", "api-1", "pending-1"]],
      [".*", []],
      ["\n", []],
    ])("the overview's text %j", async (text, wanted) => {
      const found = await overview({}, { text });
      expect(found.map(({ pod_name }) => pod_name).sort()).toEqual(wanted);
    });

    test("requires text and namespaces together", async () => {
      const found = await overview({}, { namespaces: ["shop"], text: "app=" });
      const rows = expectOverview(model, rangeOf(whole), scrape).filter(
        ({ pod_namespace, labels }) => pod_namespace === "shop" && labels.app !== undefined,
      );
      expect(rows.length).toBeGreaterThan(3);
      expect(found).toEqual(rows);
    });

    test("forced labels select their own cluster and nothing of the other", async () => {
      const tenantFilter = running.labels.neighbour;
      expect(await pods({ tenantFilter })).toEqual(expectPods(neighbour, whole, scrape));
      expect(await nodes({ tenantFilter })).toEqual(expectNodes(neighbour, whole, scrape));
      expect(await overview({ tenantFilter })).toEqual(expectOverview(neighbour, rangeOf(whole), scrape));
    });

    test("forced labels that nothing has select nothing", async () => {
      const [label = ""] = Object.keys(running.labels.model);
      for (const value of ["", "none", '"} or {x="', ".*", "model|neighbour"]) {
        const tenantFilter = { [label]: value };
        expect([
          ...(await pods({ tenantFilter })),
          ...(await nodes({ tenantFilter })),
          ...(await overview({ tenantFilter })),
        ]).toEqual([]);
      }
    });

    test("answers as many rows as the limit, and refuses one more", async () => {
      const limits = [
        [nodes, expectNodes(model, whole, scrape).length],
        [pods, expectPods(model, whole, scrape).length],
        [overview, expectOverview(model, rangeOf(whole), scrape).length],
      ] as const;
      for (const [read, rowLimit] of limits) {
        expect(await read({ rowLimit })).toHaveLength(rowLimit);
        const refused: unknown = await read({ rowLimit: rowLimit - 1 }).catch((error: unknown) => error);
        expect(refused).toBeInstanceOf(Refused);
        expect(refused).toMatchObject({ slug: "result_too_large", details: { limit: rowLimit - 1 } });
      }
    });

    test("ends with the reason of an abort", async () => {
      const control = new AbortController();
      const reason = new Error("left");
      const rows = running.store
        .pods({ ...scope({}), ...unfiltered }, control.signal)
        [Symbol.asyncIterator]();
      expect((await rows.next()).done).toBe(false);
      control.abort(reason);
      await expect(rows.next()).rejects.toBe(reason);
      await expect(collect(running.store.nodes(scope({}), control.signal))).rejects.toBe(reason);
    });
  });
}

async function collect<Row>(batches: AsyncIterable<readonly Row[]>): Promise<Row[]> {
  const rows: Row[] = [];
  for await (const batch of batches) {
    expect(batch.length).toBeGreaterThan(0);
    rows.push(...batch);
  }
  return rows;
}
