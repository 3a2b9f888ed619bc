// Rollups in an index of real servers: the store, and figures that a roller keeps there, against reading.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { isNonEmpty, type NonEmpty, requireAt, requireFirst, requireLast } from "#src/core/collections.ts";
import type { Span } from "#src/core/rows.ts";
import { minute } from "#src/core/time.ts";
import { createFederatedSpans } from "#src/federation/federated-spans.ts";
import type { RollupStore } from "#src/store/rollups.ts";
import type { ActionEdges, SpanStore } from "#src/store/span-analytics.ts";
import type { SnapshotVersion, SpanSources } from "#src/store/spans.ts";
import { createPartnerTargets, createSiteTargets } from "#src/tracing/figures/roll-targets.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCatalogue } from "#src/tracing/rollup-store/catalogue.ts";
import { rollGroups } from "#src/tracing/rollup-store/roll-step.ts";
import { groupTargets } from "#src/tracing/rollup-store/roll-target.ts";
import { sweepRollups } from "#src/tracing/rollup-store/sweep.ts";
import { openCaughtUpSnapshot } from "#src/tracing/rollups/caught-up-snapshot.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { encodeEventDigest } from "#src/tracing/spans/digest.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { describeRollups } from "../../conformance/rollups.ts";
import { createRandom } from "../../conformance/trace-fixture.ts";
import { type Running, start as startServer } from "../../servers/servers.ts";
import { jaeger } from "../../support/elastic/span-shippers/jaeger.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { at, base, createSpan, signal } from "../../tracing/span-builder.ts";
import { isShort, named, onServers, wantedServers } from "../selected-servers.ts";
import { chooseShipper } from "./span-cluster.ts";

const prefix = "rolled";
const index = "readout-rollups-test";
const length = 90 * minute;
/** Of changes, each with rollers that are killed. */
const rounds = isShort ? 2 : 4;

onServers((server) => {
  const { shipper } = chooseShipper(server);
  let cluster: Cluster;
  let store: RollupStore;
  beforeAll(() => {
    cluster = openCluster(server.url);
    const opened = cluster.backend.openRollups?.(index);
    if (opened === undefined) throw new Error("no store of rollups");
    store = opened;
  });
  afterAll(async () => {
    await cluster.remove(`${index}*`);
    await cluster.remove(`${prefix}-*`);
    await cluster.close();
  });

  describeRollups("an index", {
    open: async () => {
      await cluster.remove(`${index}*`);
      return store;
    },
    refresh: async () => void (await cluster.request("POST", `/${index}/_refresh`)),
  });

  describe("figures in an index", () => {
    testFigures({ shipper, open: () => ({ clusters: [cluster], store, traces: cluster.traces }) });
  });
});

const [one, other] = ["es7", "os3"].flatMap((name) => named().find((server) => server.name === name) ?? []);

describe.runIf(one !== undefined && other !== undefined)("figures of spans in es7 and os3", () => {
  if (one === undefined || other === undefined) return;
  const clusters: Cluster[] = [];
  beforeAll(() => void clusters.push(openCluster(one.url), openCluster(other.url)));
  afterAll(async () => {
    for (const cluster of clusters) {
      await cluster.remove(`${index}*`);
      await cluster.remove(`${prefix}-*`);
      await cluster.close();
    }
  });
  testFigures({
    shipper: jaeger,
    open: () => {
      const stores = new Map(clusters.map(({ traces }, at) => [String(at), traces] as const));
      const traces = createFederatedSpans({
        listPlaces: (source) => [...stores].map(([backend, store]) => ({ backend, store, source })),
        findStore: (backend) => stores.get(backend),
      });
      const store = clusters[1]?.backend.openRollups?.(index);
      if (store === undefined || !isNonEmpty(clusters)) throw new Error("no store of rollups");
      return { clusters, store, traces };
    },
  });
});

interface Place {
  readonly shipper: ReturnType<typeof chooseShipper>["shipper"];
  /** `traces` are over the spans of all clusters. The figures' index is in the last one. */
  readonly open: () => {
    readonly clusters: NonEmpty<Cluster>;
    readonly store: RollupStore;
    readonly traces: SpanStore;
  };
  /** Of indices whose shards have copies, which show new documents at different times. */
  readonly copies?: object;
}

function testFigures({ shipper, open, copies }: Place): void {
  const random = createRandom(31);
  const pick = <T>(list: readonly T[]): T => requireAt(list, Math.floor(random() * list.length));
  let written = 0;
  /** Of documents, and of the clusters that have them. */
  const ids: { readonly path: string; readonly clusters: readonly Cluster[] }[] = [];

  const makeSpan = (): Span => {
    written += 1;
    const to = Math.floor(random() * length);
    const span_kind = pick(["client", "server", "producer", "consumer", "internal"] as const);
    const name = pick(["x", "y"]);
    const revision = pick(["r1", "r2"]);
    return createSpan({
      trace_id: pick(["1", "2", "3"]).padStart(32, "a"),
      span_id: String(written).padStart(16, "0"),
      parent_span_id: random() < 0.2 ? undefined : String(1 + Math.floor(random() * 40)).padStart(16, "0"),
      service_name: name,
      revision,
      resource_attributes: { "service.name": name, "service.version": revision },
      span_kind,
      span_name: pick(["work", "rest"]),
      status_code: pick(["OK", "ERROR"]),
      from: to - pick([0, 10, 5_000]),
      to,
    });
  };
  const isLagging = copies !== undefined;
  const refresh = isLagging ? "" : "?refresh=true";
  /** Each span in one cluster, every fifth in all. */
  const chooseClusters = (number: number): readonly Cluster[] => {
    const { clusters } = open();
    return number % 5 === 0 ? clusters : [requireAt(clusters, number % clusters.length)];
  };
  async function write(count: number): Promise<void> {
    const { clusters } = open();
    const lines = new Map(clusters.map((cluster) => [cluster, [] as string[]]));
    for (const span of Array.from({ length: count }, makeSpan)) {
      const shipped = requireFirst(shipper.write(prefix, [span]));
      const chosen = chooseClusters(written);
      ids.push({ path: `${shipped.index}/_doc/${span.span_id}`, clusters: chosen });
      const action = JSON.stringify({ index: { _index: shipped.index, _id: span.span_id } });
      for (const cluster of chosen) lines.get(cluster)?.push(action, shipped.document);
    }
    for (const [cluster, own] of lines) {
      if (own.length === 0) continue;
      const answer = await cluster.request("POST", `/_bulk${refresh}`, `${own.join("\n")}\n`);
      expect(answer).toMatchObject({ errors: false });
    }
  }
  async function removeLast(): Promise<void> {
    const last = ids.pop();
    for (const cluster of last?.clusters ?? []) await cluster.request("DELETE", `/${last?.path}${refresh}`);
  }

  test("answer as reading does, while rollers are killed and spans come and go", {
    timeout: 600_000,
  }, async () => {
    const { clusters, store, traces } = open();
    for (const cluster of clusters) {
      await cluster.remove(`${index}*`);
      await cluster.remove(`${prefix}-*`);
      for (const [name, definition] of Object.entries(shipper.indices(prefix))) {
        await cluster.createIndex(name, { ...definition, ...copies });
      }
    }
    /** Rollers may see what came last in some copies only. */
    const settle = async () => {
      if (!isLagging) return;
      for (const cluster of clusters) await cluster.request("POST", `/${prefix}-*/_refresh`);
    };
    const source = buildSpanSource("shop", { index: shipper.pattern(prefix), layout: "auto" });
    const now = () => at(length + 10 * minute);
    const retention = length + 20 * minute;
    const rolled = { backend: "es", reader: traces, source, retention };
    const targets = [...createSiteTargets(rolled), ...createPartnerTargets(rolled, [])];
    let time = base;
    const catalogue = createRollupCatalogue(
      () => store,
      () => (time += minute),
      (error) => {
        throw error;
      },
    );
    const lookups: boolean[] = [];
    /** Rows of actions. */
    let compared = 0;
    let comparisons = 0;
    const cache = createRollupCache({
      backend: "es",
      maxBytes: 0,
      minSpans: 0,
      stored: catalogue,
      recordLookup: (hit) => void lookups.push(hit),
    });
    const analytics = createRollupAnalytics(traces, cache);
    const compareAnswers = async () => {
      await settle();
      const sources = [source] as const;
      const range = { from: at(0), to: at(length - 1e-6) };
      const edges = { sources, partners: [], range };
      const attributes = { requiredAttributes: [], excludedAttributes: [], limit: 100 };
      const budget = () => ({ budget: createBudget(100_000) });
      const ofSite = await analytics.siteEdges({ ...edges, ...budget() }, signal);
      const readOfSite = await traces.siteEdges({ ...edges, ...budget() }, signal);
      const format = (rows: typeof ofSite.downstream) =>
        rows
          .map(
            ({ service, count, error_count, mean }) =>
              `${service} ${count} ${error_count} ${mean.toFixed(9)}`,
          )
          .sort();
      for (const side of ["upstream", "downstream", "internal"] as const)
        expect(format(ofSite[side])).toEqual(format(readOfSite[side]));
      for (const [service, action] of [
        ["x", "work"],
        ["y", "rest"],
      ] as const) {
        const of = { ...edges, service, namespace: "web", action };
        const found = await analytics.actionEdges({ ...of, ...budget() }, signal);
        const read = await traces.actionEdges({ ...of, ...budget() }, signal);
        compared += read.upstream.length + read.downstream.length;
        for (const side of ["upstream", "downstream"] as const)
          expect(formatActionEdges(found[side])).toEqual(formatActionEdges(read[side]));
      }
      for (const revision of [undefined, "r1"]) {
        const of = { sources, range, namespaces: [], revision };
        const read = await traces.actions({ ...of, ...budget() }, signal);
        const found = await analytics.actions({ ...of, ...budget() }, signal);
        expect(found.map(printMeasured).sort()).toEqual(read.map(printMeasured).sort());
        compared += read.length;
      }
      const ofRevision = { sources, range, revision: "r1" };
      const stats = await traces.revisionStats({ ...ofRevision, ...budget() }, signal);
      const found = await analytics.revisionStats({ ...ofRevision, ...budget() }, signal);
      expect(found && printMeasured(found)).toEqual(stats && printMeasured(stats));
      const events = await traces.slowEvents({ sources, range, ...attributes, ...budget() }, signal);
      expect(await analytics.slowEvents({ sources, range, ...attributes, ...budget() }, signal)).toEqual(
        events,
      );
      comparisons += 1;
      // Two of them each time, others the next time.
      for (const { service, kind, name } of events.filter((_, at) => at % 10 === comparisons % 10)) {
        const digest = encodeEventDigest({ service, kind, name, statement: undefined });
        const of = { sources, range, digest };
        const sort = (rows: readonly object[]) => rows.map((row) => printRow(row)).sort();
        const read = await traces.slowEventActions({ ...of, ...budget() }, signal);
        compared += read.length;
        expect(sort(await analytics.slowEventActions({ ...of, ...budget() }, signal))).toEqual(sort(read));
      }
    };
    const roll = async (killedStore: RollupStore = store, steps = 400) => {
      const context = {
        store: killedStore,
        now,
        segmentSpans: 30,
        maxDocuments: 100_000,
        maxHeldSpans: 10_000,
        maxMergedBytes: 2_000_000,
        behindPause: 0,
      };
      for (const own of groupTargets(targets)) {
        const orders = own.map((target) => ({
          target,
          skipped: [],
          isUnverified: false,
          mayTakeAsDeleted: () => true,
          isUnstable: () => false,
        }));
        for (let taken = 0; taken < steps && isNonEmpty(orders); taken += 1) {
          const done = await rollGroups(context, orders, signal);
          if (done.every(({ did }) => did === "idle")) break;
        }
      }
    };
    await write(60);
    await roll();
    for (let round = 0; round < rounds; round += 1) {
      await compareAnswers();
      if (round % 2 === 1) await removeLast();
      else await write(2);
      if (!isLagging) await compareAnswers();
      await roll(killAfter(store, Math.floor(random() * 8)), 3).catch((error: Error) => {
        if (error.message !== "killed") throw error;
      });
      await compareAnswers();
      if (isLagging) await write(1);
      await Promise.all([roll(store, 2), roll(store, 2)]);
    }
    await settle();
    await roll();
    await sweepTwice(requireLast(clusters), store);
    lookups.length = 0;
    await compareAnswers();
    expect(lookups.filter((hit) => !hit)).toEqual([]);
    expect(lookups.length).toBeGreaterThan(5);
    expect(compared).toBeGreaterThan(2 * rounds);
  });
}

/** Deletes what the killed rollers have left, and nothing of another program. */
async function sweepTwice(cluster: Cluster, store: RollupStore): Promise<void> {
  const other = { id: "manifest-of-another-program", site: "", made: 0, body: "{}" };
  await store.create([other], signal);
  await cluster.request("POST", `/${index}/_refresh`);
  const now = base + length;
  const first = await sweepRollups(store, now, new Set(), signal);
  const second = await sweepRollups(store, now, first.unreferenced, signal);
  expect(first.unreferenced.size).toBeGreaterThan(0);
  expect([first.broken, second.broken]).toEqual([new Set(), new Set()]);
  expect(await store.read([...first.unreferenced], signal)).toEqual([]);
  expect(await store.read([other.id], signal)).toHaveLength(1);
}

const copies = { settings: { number_of_shards: 2, number_of_replicas: 1, refresh_interval: "300ms" } };

describe.runIf(wantedServers().names.includes("os3"))("figures over shards with copies on two nodes", () => {
  let server: Running;
  let cluster: Cluster;
  beforeAll(async () => {
    server = await startServer("os3", undefined, { nodes: 2 });
    cluster = openCluster(server.url);
  });
  afterAll(async () => {
    await cluster?.close();
    await server?.stop();
  });
  const { shipper } = chooseShipper({ name: "os3" });
  testFigures({
    shipper,
    open: () => {
      const store = cluster.backend.openRollups?.(index);
      if (store === undefined) throw new Error("no store of rollups");
      return { clusters: [cluster], store, traces: cluster.traces };
    },
    copies,
  });

  test("these copies show new documents at different times", { timeout: 120_000 }, async () => {
    const name = `${prefix}-copies`;
    await cluster.createIndex(name, copies);
    await cluster.request("GET", `/_cluster/health/${name}?wait_for_status=green&timeout=60s`);
    const nodes = (await cluster.request("GET", "/_nodes")) as { nodes: Record<string, unknown> };
    const ids = Object.keys(nodes.nodes);
    expect(ids).toHaveLength(2);
    const count = async (node: string): Promise<number> => {
      const found = await cluster.request("GET", `/${name}/_count?preference=_only_nodes:${node}`);
      return (found as { count: number }).count;
    };
    const hasDifference = async (): Promise<boolean> => new Set(await Promise.all(ids.map(count))).size > 1;
    // Otherwise the test above would be one of shards without copies.
    let isDifferent = false;
    for (let document = 0; document < 200 && !isDifferent; document += 1) {
      await cluster.request("PUT", `/${name}/_doc/${document}`, "{}");
      for (let look = 0; look < 40 && !isDifferent; look += 1) isDifferent = await hasDifference();
    }
    expect(isDifferent).toBe(true);
  });

  test("a copy may be behind another one that was counted, and catches up", {
    timeout: 300_000,
  }, async () => {
    await cluster.remove(`${prefix}-*`);
    for (const [name, definition] of Object.entries(shipper.indices(prefix)))
      await cluster.createIndex(name, { ...definition, ...copies });
    const sources = [
      buildSpanSource("shop", { index: shipper.pattern(prefix), layout: "auto" }),
    ] as const satisfies SpanSources;
    let version: SnapshotVersion | undefined;
    let wereBehind = 0;
    for (let number = 0; number < 1_000 && wereBehind < 3; number += 1) {
      const span = createSpan({ span_id: String(number).padStart(16, "0"), from: number, to: number + 1 });
      for (const { index: name, document } of shipper.write(prefix, [span]))
        await cluster.request("POST", `/${name}/_doc`, document);
      const snapshot = await cluster.traces.openSnapshot?.(sources, version, signal);
      snapshot?.close();
      if (snapshot === undefined || snapshot.behindOrigins.size === 0) {
        version = snapshot?.version;
        continue;
      }
      wereBehind += 1;
      expect(snapshot.added?.changedOrigins.size).toBe(1);
      const kept =
        version === undefined ? [] : [{ version, needs: ({ size }: { size: number }) => size > 0 }];
      const opening = { sources, kept, pause: 500 };
      const later = await openCaughtUpSnapshot(cluster.traces, opening, signal);
      later?.close();
      expect(later).toMatchObject({ behindOrigins: new Set(), added: { changedOrigins: new Set() } });
    }
    expect(wereBehind).toBe(3);
  });
});

const printRow = (row: object): string =>
  JSON.stringify(row, (_, value) => (typeof value === "bigint" ? String(value) : value));

/** Percentiles may differ by 2 %. */
function printMeasured({ p_90, p_95, mean, ...row }: { mean: number; p_90?: number; p_95?: number }): string {
  return printRow({ ...row, mean: mean.toFixed(9) });
}

function formatActionEdges(rows: ActionEdges["upstream"]): readonly string[] {
  return rows.map(printMeasured).sort();
}

/** Fails the n-th write, before or after it has had its effect. */
function killAfter(store: RollupStore, calls: number): RollupStore {
  let left = calls;
  const run = async <T>(work: () => Promise<T>): Promise<T> => {
    left -= 1;
    if (left === -1 && calls % 2 === 0) throw new Error("killed");
    const result = await work();
    if (left === -1) throw new Error("killed");
    return result;
  };
  return {
    ...store,
    create: (documents, own) => run(() => store.create(documents, own)),
    replace: (document, revision, own) => run(() => store.replace(document, revision, own)),
  };
}
