import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { Unprocessable } from "#src/core/errors.ts";
import { type Buckets, type Container, type NodesRow, podPhases } from "#src/core/rows.ts";
import { fromMillis, type Instant, parseInstant, printNanos } from "#src/core/time.ts";
import { computeSnapshots, nodes, pods, podsOverview } from "#src/operations/kubernetes/kubernetes.ts";
import type { Context, RowBatch } from "#src/operations/runtime/operation.ts";
import { parseRequest } from "#src/operations/runtime/request-body.ts";
import type { KubernetesStore } from "#src/store/kubernetes.ts";
import { derivePodState } from "#src/store/kubernetes-rules.ts";
import { sampleRuns } from "../support/law-runs.ts";

const range = { site_id: "shop", from: "2026-01-15T10:00:00Z", to: "2026-01-15T10:30:00Z" };
const minute = 60_000;

const never = fromMillis(Date.UTC(2200, 0));

function contextOf(store: KubernetesStore | undefined, now = never): Context {
  const site: Site = {
    id: "shop",
    retention: 86_400_000,
    counterDefault: "cumulative",
    ...(store && { kubernetes: { backend: "prom", match: { cluster: "c" }, store } }),
  };
  return {
    user: "ana",
    sites: new Map([["shop", site]]),
    limits: { ...defaults.limits, rows: 77 },
    now: () => now,
    signal: new AbortController().signal,
  };
}

/** A store that records its queries and returns these nodes. */
function remembering(batches: readonly (readonly NodesRow[])[] = []) {
  const asked: unknown[] = [];
  const none = async function* (query: unknown) {
    asked.push(query);
    yield* [];
  };
  const store: KubernetesStore = {
    nodes: async function* (query) {
      asked.push(query);
      yield* batches;
    },
    pods: none,
    overview: none,
  };
  return { store, asked };
}
const node = (timestamp: number, name: string): NodesRow => ({
  timestamp,
  node_name: name,
  cpu_usage_nano_cores: 1,
  memory_rss_bytes: 2,
  memory_usage_bytes: 3,
  memory_working_set_bytes: 4,
  memory_page_faults: 5,
  memory_major_page_faults: 6,
  fs_used_bytes: 7,
  fs_available_bytes: 8,
  fs_capacity_bytes: 9,
  fs_inodes_free: 10,
  fs_inodes_used: 11,
  fs_inodes: 12,
  network_rx_bytes: 13,
  network_tx_bytes: 14,
  phase: 2,
});

async function collect(answer: object): Promise<unknown[]> {
  const rows: unknown[] = [];
  for await (const { count, text } of answer as AsyncIterable<RowBatch>) {
    const parsed: unknown[] = JSON.parse(`[${text}]`);
    expect(parsed).toHaveLength(count);
    rows.push(...parsed);
  }
  return rows;
}

describe("Kubernetes request bodies", () => {
  const bare = { namespaces: [], pod_name: undefined, node_names: [], state: undefined };
  test.each<[object, object]>([
    [{}, bare],
    [{ namespaces: null, pod_name: null, node_names: null, state: null, unknown: 1 }, bare],
    [{ namespaces: [], pod_name: "", node_names: [], state: "" }, bare],
    [
      { namespaces: ["a"], pod_name: "p", node_names: ["n", ""] },
      { ...bare, namespaces: ["a"], pod_name: "p", node_names: ["n", ""] },
    ],
    ...["failed", "FAILED", "Failed"].map((state): [object, object] => [
      { state },
      { ...bare, state: "Failed" },
    ]),
  ])("reads the pods filters %j", (more, read) => {
    expect({ ...bare, ...parseRequest(pods.request, { ...range, ...more }) }).toMatchObject(read);
  });

  test("treats an empty text in nodes and overview requests as no filter", () => {
    expect(parseRequest(nodes.request, { ...range, node_name: "" }).node_name).toBeUndefined();
    expect(parseRequest(nodes.request, { ...range, node_name: "n" }).node_name).toBe("n");
    expect(parseRequest(podsOverview.request, { ...range, query: null }).query).toBeUndefined();
  });

  test.each<[object, readonly string[]]>([
    [{}, ["site_id", "from", "to"]],
    [{ ...range, from: null }, ["from"]],
    [{ ...range, from: "2026-01-15T10:00:00", to: 1_700_000_000 }, ["from", "to"]],
    [{ ...range, from: range.to, to: range.from }, ["from"]],
    [{ ...range, namespaces: "shop" }, ["namespaces"]],
    [{ ...range, namespaces: ["shop", 3, null] }, ["namespaces.1", "namespaces.2"]],
    [{ ...range, pod_name: 1, node_names: {}, state: "Crashed" }, ["pod_name", "node_names", "state"]],
  ])("refuses the pods body %j", (body, paths) => {
    const refused = thrown(() => parseRequest(pods.request, body));
    expect(refused).toMatchObject({ slug: "invalid_request" });
    expect(refused.details).toMatchObject({
      issues: paths.map((path) => ({ path, message: expect.stringMatching(/^(?:is|expected)/) })),
    });
  });

  function thrown(act: () => unknown): Unprocessable {
    try {
      act();
    } catch (error) {
      if (error instanceof Unprocessable) return error;
    }
    throw new Error("nothing was refused");
  }
});

describe("Kubernetes snapshots", () => {
  const over = (from: string, to: string): Buckets | undefined => {
    const read = (text: string) => ({ text, instant: parseInstant(text) ?? (0n as Instant) });
    return computeSnapshots({ from: read(from), to: read(to) }, never);
  };
  const at = (text: string): number => Date.parse(text);

  test.each<[from: string, to: string, step: number, first: string, count: number]>([
    ["2026-01-15T10:00:00Z", "2026-01-15T10:00:00Z", 1, "2026-01-15T10:00:00Z", 1],
    ["2026-01-15T10:00:00Z", "2026-01-15T13:00:00Z", 1, "2026-01-15T10:00:00Z", 181],
    ["2026-01-15T10:00:00.000000001Z", "2026-01-15T10:02:00Z", 1, "2026-01-15T10:01:00Z", 2],
    ["2026-01-15T11:00:30+01:00", "2026-01-15T10:02:59.999Z", 1, "2026-01-15T10:01:00Z", 2],
    ["2026-01-15T10:00:00Z", "2026-01-15T13:00:00.001Z", 5, "2026-01-15T10:00:00Z", 37],
    ["2026-01-15T10:01:00Z", "2026-01-15T22:01:00Z", 5, "2026-01-15T10:05:00Z", 144],
    ["2026-01-15T10:01:00Z", "2026-01-16T10:01:00Z", 10, "2026-01-15T10:10:00Z", 144],
    ["2026-01-15T10:01:00Z", "2026-01-17T10:01:00Z", 15, "2026-01-15T10:15:00Z", 192],
    ["2026-01-15T10:01:00Z", "2026-02-15T10:01:00Z", 60, "2026-01-15T11:00:00Z", 744],
    ["1969-12-31T23:58:30Z", "1970-01-01T00:00:30Z", 1, "1969-12-31T23:59:00Z", 2],
  ])("covers %s to %s every %d minutes", (from, to, step, first, count) => {
    expect(over(from, to)).toEqual({ start: at(first), step: step * minute, count });
  });

  test("returns no row and sends no query for a range between two snapshots", async () => {
    const { store, asked } = remembering();
    const body = { ...range, from: "2026-01-15T10:00:00.001Z", to: "2026-01-15T10:00:59.999Z" };
    expect(await collect(nodes.run(parseRequest(nodes.request, body), contextOf(store)))).toEqual([]);
    expect(asked).toEqual([]);
  });

  test("queries the store for an overview of part of a minute and of one instant", async () => {
    const { store, asked } = remembering();
    for (const [from, to] of [
      ["2026-01-15T10:00:00.001Z", "2026-01-15T10:00:59.999Z"],
      ["2026-01-15T10:00:10.5Z", "2026-01-15T10:00:10.500000001Z"],
    ]) {
      const body = parseRequest(podsOverview.request, { ...range, from, to });
      await collect(podsOverview.run(body, contextOf(store)));
    }
    expect(asked).toMatchObject([
      { from: at("2026-01-15T10:00:00.001Z"), to: at("2026-01-15T10:00:59.999Z") },
      { from: at("2026-01-15T10:00:10.500Z"), to: at("2026-01-15T10:00:10.500Z") },
    ]);
    const years = { ...range, from: "2020-01-01T00:00:00Z" };
    const refused = collect(podsOverview.run(parseRequest(podsOverview.request, years), contextOf(store)));
    await expect(refused).rejects.toMatchObject({ slug: "result_too_large", details: { limit: 1_000_000 } });
    expect(asked).toHaveLength(2);
  });

  test("stops at now and keeps the interval of the requested range", async () => {
    const { store, asked } = remembering();
    const now = fromMillis(at("2026-01-15T10:07:30.250Z"));
    const run = async (from: string, to: string) => {
      const body = { ...range, from, to };
      await collect(nodes.run(parseRequest(nodes.request, body), contextOf(store, now)));
      await collect(podsOverview.run(parseRequest(podsOverview.request, body), contextOf(store, now)));
    };
    await run("2026-01-15T10:00:00Z", "2026-01-15T23:59:59.999Z");
    expect(asked).toMatchObject([
      { snapshots: { start: at("2026-01-15T10:00:00Z"), step: 10 * minute, count: 1 } },
      { from: at("2026-01-15T10:00:00Z"), to: at("2026-01-15T10:07:30.250Z") },
    ]);
    await run("2026-01-15T10:07:31Z", "2026-01-15T10:30:00Z");
    expect(asked).toHaveLength(2);
    await run("2026-01-15T10:07:00Z", "9999-12-31T23:59:59.999Z");
    expect(asked.slice(2)).toMatchObject([{ to: at("2026-01-15T10:07:30.250Z") }]);
  });

  test("refuses a range of more than a million snapshots without a query", async () => {
    const { store, asked } = remembering();
    const years = (to: string) => parseRequest(nodes.request, { ...range, from: "1900-01-01T00:00:00Z", to });
    await collect(nodes.run(years("2014-01-01T00:00:00Z"), contextOf(store)));
    expect(asked).toHaveLength(1);
    const refused = collect(nodes.run(years("2015-01-01T00:00:00Z"), contextOf(store)));
    await expect(refused).rejects.toMatchObject({ slug: "result_too_large", details: { limit: 1_000_000 } });
    expect(asked).toHaveLength(1);
  });

  test("are exactly the multiples of the interval within the range", () => {
    const instant = fc.bigInt({ min: -(10n ** 17n), max: 2n * 10n ** 18n });
    const length = fc.oneof(fc.bigInt(0n, 11_000n * 10n ** 9n), fc.bigInt(0n, 10n ** 15n));
    const law = fc.property(instant, length, (from, nanos) => {
      const to = from + nanos;
      const time = (value: bigint) => ({ text: printNanos(value as Instant), instant: value as Instant });
      const found = computeSnapshots({ from: time(from), to: time(to) }, never);
      const hours = Number(nanos) / 3.6e12;
      const step = hours <= 3 ? 1 : hours <= 12 ? 5 : hours <= 24 ? 10 : hours <= 48 ? 15 : 60;
      const nano = BigInt(step) * 60_000_000_000n;
      const first = from / nano - (from < 0n && from % nano !== 0n ? 1n : 0n);
      const wanted: bigint[] = [];
      for (let next = first * nano; next <= to && wanted.length < 2_000; next += nano) {
        if (next >= from) wanted.push(next);
      }
      const moments = Array.from({ length: Math.min(found?.count ?? 0, 2_000) }, (_, index) =>
        fromMillis((found?.start ?? 0) + index * (found?.step ?? 0)),
      );
      expect(moments).toEqual(wanted);
    });
    fc.assert(law, { numRuns: sampleRuns(300) });
  });
});

describe("Kubernetes answers", () => {
  test("passes the site's forced labels and the row limit to the store", async () => {
    const { store, asked } = remembering();
    const filters = { namespaces: ["a"], pod_name: "p", node_names: ["n"], state: "running" };
    await collect(pods.run(parseRequest(pods.request, { ...range, ...filters }), contextOf(store)));
    await collect(
      podsOverview.run(parseRequest(podsOverview.request, { ...range, query: "Web" }), contextOf(store)),
    );
    const snapshots = { start: Date.parse(range.from), step: minute, count: 31 };
    const scope = { match: { cluster: "c" }, rowLimit: 77 };
    expect(asked).toEqual([
      { ...scope, snapshots, namespaces: ["a"], pods: ["p"], nodes: ["n"], state: "Running" },
      {
        ...scope,
        from: Date.parse(range.from),
        to: Date.parse(range.to),
        namespaces: [],
        text: "Web",
      },
    ]);
  });

  test("prints the rows of the specification, with their time as text, for any batch size", async () => {
    const start = Date.parse(range.from);
    const first = Array.from({ length: 1_201 }, (_, index) => node(start, `n${index}`));
    const { store } = remembering([first, [node(start + minute, "n0")]]);
    const rows = await collect(nodes.run(parseRequest(nodes.request, range), contextOf(store)));
    const told = [...first, node(start + minute, "n0")];
    expect(rows).toEqual(
      told.map((row, index) => ({
        ...row,
        timestamp: index < 1_201 ? "2026-01-15T10:00:00.000Z" : "2026-01-15T10:01:00.000Z",
      })),
    );
  });

  test("refuses a site without Kubernetes", async () => {
    for (const { request, run } of [nodes, pods, podsOverview] as const) {
      const answer = collect(run(parseRequest(request, { ...range }) as never, contextOf(undefined)));
      await expect(answer).rejects.toMatchObject({
        slug: "not_supported_by_backend",
        details: { backend: null, feature: "kubernetes" },
      });
    }
  });
});

describe("pod state", () => {
  const container = (over: Partial<Container>): Container => ({
    name: "app",
    status: "Running",
    exit_code: 0,
    reason: "",
    ...over,
  });
  const waits = (reason: string) => container({ status: "Waiting", reason });
  const ends = (exit_code: number) => container({ status: "Terminated", exit_code, reason: "x" });

  test.each<[string, readonly Container[], string]>([
    ["Running", [], "Running"],
    ["Running", [container({})], "Running"],
    ["Running", [container({}), waits("ContainerCreating")], "Pending"],
    ["Running", [waits("PodInitializing"), ends(2)], "Failed"],
    ["Running", [ends(0), container({})], "Running"],
    ["Running", [container({ status: "Unknown" })], "Running"],
    ["Pending", [], "Pending"],
    ["Pending", [waits("")], "Pending"],
    ...[
      "CrashLoopBackOff",
      "ImagePullBackOff",
      "ErrImagePull",
      "InvalidImageName",
      "CreateContainerError",
      "CreateContainerConfigError",
      "RunContainerError",
    ].map((reason): [string, readonly Container[], string] => [
      "Pending",
      [container({}), waits(reason)],
      "Failed",
    ]),
    ...["Succeeded", "Failed", "Unknown"].map((phase): [string, readonly Container[], string] => [
      phase,
      [waits("CrashLoopBackOff"), ends(3)],
      phase,
    ]),
  ])("is derived from phase %s and containers %j as %s", (text, containers, state) => {
    const phase = podPhases.find((each) => each === text) ?? "Unknown";
    expect(derivePodState(phase, containers)).toBe(state);
  });
});
