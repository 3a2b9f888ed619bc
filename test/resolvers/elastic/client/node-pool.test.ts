// A cluster with several addresses: a failing node costs at most one request.
import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { createElasticClient, type ElasticClient } from "#resolvers/elastic/client/client.ts";
import { createNodePool } from "#resolvers/elastic/client/node-pool.ts";
import { guardDefaults } from "#resolvers/http/guard.ts";
import { BackendError, LimitReached } from "#src/core/errors.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

type Behaviour = "answers" | "hangs" | "breaks" | "starts";
interface Node {
  readonly fake: ScriptedSource;
  behaviour: Behaviour;
}

/** The response of any node while a shard has no copy. */
const missingShard = {
  path: "/lost/_pit",
  answer: {
    error: { type: "search_phase_execution_exception", reason: "due to missing shards" },
    status: 503,
  },
};

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const resource of opened.splice(0).reverse()) await resource.close();
  vi.useRealTimers();
});

async function startNode(product: string): Promise<Node> {
  const version = { number: "8.19.8", ...(product === "OpenSearch" && { distribution: "opensearch" }) };
  const fake = await openScriptedSource((response, request) => {
    if (node.behaviour === "hangs") return;
    if (node.behaviour === "breaks") response.destroy();
    else if (node.behaviour === "starts") sendJson(response, {}, 503);
    else if (request.url === missingShard.path) sendJson(response, missingShard.answer, 503);
    else sendJson(response, request.url === "/" ? { version } : {});
  });
  const node: Node = { fake, behaviour: "answers" };
  opened.push(fake);
  return node;
}

async function startCluster(
  product: string,
  timeout: number,
): Promise<{ nodes: readonly [Node, Node, Node]; client: ElasticClient }> {
  const nodes = [await startNode(product), await startNode(product), await startNode(product)] as const;
  const settings = { ...guardDefaults, timeout, headers: {}, maxResponseBytes: 1_000_000, view: "" };
  const client = createElasticClient(
    "elk",
    { ...settings, nodes: nodes.map(({ fake }) => fake.url) },
    testIO,
  );
  opened.push(client);
  await client.detectProduct(never);
  return { nodes, client };
}

/** Sends requests and returns how many fail. Requests of scrolls are never repeated. */
async function scroll(client: ElasticClient, times: number): Promise<number> {
  let failed = 0;
  for (let i = 0; i < times; i++) {
    const request = { method: "POST", path: "/_search/scroll", body: "{}" } as const;
    await client.send(request, never).catch(() => failed++);
  }
  return failed;
}
const countRequests = ({ fake }: Node) => fake.requests.filter(({ path }) => path !== "/").length;

describe.each(["Elasticsearch", "OpenSearch"])("node pool of three %s nodes", (product) => {
  // Loads the clients first, so that loading does not count as hanging.
  beforeAll(async () => {
    const { client } = await startCluster(product, 30_000);
    await scroll(client, 3);
  });

  test("sends requests to the nodes round robin", async () => {
    const { nodes, client } = await startCluster(product, 1_000);
    expect(await scroll(client, 9)).toBe(0);
    expect(nodes.map(countRequests)).toEqual([3, 3, 3]);
  });

  test("loses no request when a node is gone", async () => {
    const { nodes, client } = await startCluster(product, 1_000);
    await nodes[1].fake.close();
    expect(await scroll(client, 30)).toBe(0);
  });

  test("loses one request when a node hangs", async () => {
    const { nodes, client } = await startCluster(product, 1_000);
    nodes[1].behaviour = "hangs";
    expect(await scroll(client, 30)).toBe(1);
  });

  test("loses one request when a node is starting", async () => {
    const { nodes, client } = await startCluster(product, 1_000);
    nodes[2].behaviour = "starts";
    expect(await scroll(client, 30)).toBe(1);
  });

  test("does not suspend nodes that report a shard without a copy, so that a hanging node stays last", async () => {
    const { nodes, client } = await startCluster(product, 1_000);
    nodes[1].behaviour = "hangs";
    expect(await scroll(client, 3)).toBe(1);
    for (let i = 0; i < 6; i++) {
      const request = { method: "POST", path: missingShard.path } as const;
      await expect(client.send(request, never)).rejects.toMatchObject({ status: 503 });
      expect(await scroll(client, 1)).toBe(0);
    }
  });

  test("uses all nodes again after all have failed, some more often than others", async () => {
    const { nodes, client } = await startCluster(product, 1_000);
    for (const node of nodes) {
      node.behaviour = "breaks";
      await scroll(client, 7);
    }
    for (const node of nodes) node.behaviour = "answers";
    expect(await scroll(client, 30)).toBe(0);
    expect(Math.min(...nodes.map(countRequests))).toBeGreaterThan(0);
  });
});

test.each([1, 8])(
  "each probe that a node fails doubles its suspension once, %i requests at once",
  async (atOnce) => {
    vi.useFakeTimers();
    const probes: number[] = [];
    const transports = [503, 200].map((status, at) => ({
      async send(request: string) {
        if (at === 0 && request === "probe") probes.push(performance.now() / 1_000);
        return status;
      },
      close: async () => {},
    }));
    const pool = createNodePool({
      backend: "elk",
      transports,
      timeout: 1_000,
      probeRequest: "probe",
      isNodeUnavailable: (status) => status === 503,
    });
    const started = performance.now() / 1_000;
    for (let second = 0; second <= 100; second++) {
      await Promise.all(Array.from({ length: atOnce * transports.length }, () => pool.send("search", never)));
      await vi.advanceTimersByTimeAsync(1_000);
    }
    expect(probes.map((at) => Math.round(at - started))).toEqual([5, 15, 35, 75]);
  },
);

test.each<[string, boolean, unknown]>([
  ["the request is late", true, new BackendError("elk", "timeout", "no answer within 1000 ms")],
  ["the client's deadline passes", true, new LimitReached("deadline", "timeout", "the deadline has passed")],
  ["another backend is late", false, new BackendError("prom", "timeout", "no answer within 1000 ms")],
  ["the client leaves", false, new Error("left")],
])("a node that has not answered when %s is suspended: %s", async (_, isSuspended, reason) => {
  vi.useFakeTimers();
  const asked: number[] = [];
  const transports = [0, 1].map((node) => ({
    send(request: string, signal: AbortSignal) {
      if (request === "search") asked.push(node);
      if (asked.length > 1) return Promise.resolve(200);
      return new Promise<number>((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason)),
      );
    },
    close: async () => {},
  }));
  const pool = createNodePool({
    backend: "elk",
    transports,
    timeout: 1_000,
    probeRequest: "probe",
    isNodeUnavailable: (status) => status === 503,
  });
  const leaving = new AbortController();
  const waiting = pool.send("search", leaving.signal).catch(() => "failed");
  await vi.advanceTimersByTimeAsync(900);
  leaving.abort(reason);
  expect(await waiting).toBe("failed");
  for (let sent = 0; sent < 4; sent += 1) await pool.send("search", never);
  expect(asked).toEqual(isSuspended ? [0, 1, 1, 1, 1] : [0, 1, 0, 1, 0]);
});
