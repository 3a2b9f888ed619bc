// A cluster with several addresses: a failing node costs at most one request.
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { createElasticClient, type ElasticClient } from "#resolvers/elastic/client/client.ts";
import { guardDefaults } from "#resolvers/http/guard.ts";
import { testIO } from "../../../support/elastic/test-index.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";

type Way = "answers" | "hangs" | "breaks" | "starts";
interface Node {
  readonly fake: ScriptedSource;
  way: Way;
}

/** What any node answers while a shard has no copy. */
const lost = {
  path: "/lost/_pit",
  answer: {
    error: { type: "search_phase_execution_exception", reason: "due to missing shards" },
    status: 503,
  },
};

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

async function startNode(product: string): Promise<Node> {
  const version = { number: "8.19.8", ...(product === "OpenSearch" && { distribution: "opensearch" }) };
  const fake = await openScriptedSource((response, request) => {
    if (node.way === "hangs") return;
    if (node.way === "breaks") response.destroy();
    else if (node.way === "starts") sendJson(response, {}, 503);
    else if (request.url === lost.path) sendJson(response, lost.answer, 503);
    else sendJson(response, request.url === "/" ? { version } : {});
  });
  const node: Node = { fake, way: "answers" };
  opened.push(fake);
  return node;
}

async function startCluster(
  product: string,
  timeout: number,
): Promise<{ nodes: readonly [Node, Node, Node]; client: ElasticClient }> {
  const nodes = [await startNode(product), await startNode(product), await startNode(product)] as const;
  const settings = { ...guardDefaults, timeout, headers: {}, maxResponseBytes: 1_000_000 };
  const client = createElasticClient(
    "elk",
    { ...settings, nodes: nodes.map(({ fake }) => fake.url) },
    testIO,
  );
  opened.push(client);
  await client.detectProduct(AbortSignal.timeout(30_000));
  return { nodes, client };
}

/** How many of these fail. A scroll goes on with each request, so that none of them is sent twice. */
async function scroll(client: ElasticClient, times: number): Promise<number> {
  let failed = 0;
  for (let i = 0; i < times; i++) {
    const request = { method: "POST", path: "/_search/scroll", body: "{}" } as const;
    await client.send(request, AbortSignal.timeout(10_000)).catch(() => failed++);
  }
  return failed;
}
const answered = ({ fake }: Node) => fake.requests.filter(({ path }) => path !== "/").length;

describe.each(["Elasticsearch", "OpenSearch"])("node pool of three %s nodes", (product) => {
  // What a client costs to load is not to count as hanging.
  beforeAll(async () => {
    const { client: door } = await startCluster(product, 30_000);
    await scroll(door, 3);
  });

  test("sends requests to the nodes round robin", async () => {
    const { nodes, client: door } = await startCluster(product, 1_000);
    expect(await scroll(door, 9)).toBe(0);
    expect(nodes.map(answered)).toEqual([3, 3, 3]);
  });

  test("loses no request when a node is gone", async () => {
    const { nodes, client: door } = await startCluster(product, 1_000);
    await nodes[1].fake.close();
    expect(await scroll(door, 30)).toBe(0);
  });

  test("loses one request when a node hangs", async () => {
    const { nodes, client: door } = await startCluster(product, 1_000);
    nodes[1].way = "hangs";
    expect(await scroll(door, 30)).toBe(1);
  });

  test("loses one request when a node is starting", async () => {
    const { nodes, client: door } = await startCluster(product, 1_000);
    nodes[2].way = "starts";
    expect(await scroll(door, 30)).toBe(1);
  });

  test("does not suspend nodes that report a shard without a copy, so that a hanging node stays last", async () => {
    const { nodes, client: door } = await startCluster(product, 1_000);
    nodes[1].way = "hangs";
    expect(await scroll(door, 3)).toBe(1);
    for (let i = 0; i < 6; i++) {
      const request = { method: "POST", path: lost.path } as const;
      await expect(door.send(request, AbortSignal.timeout(10_000))).rejects.toMatchObject({ status: 503 });
      expect(await scroll(door, 1)).toBe(0);
    }
  });

  test("uses all nodes again after all have failed, some more often than others", async () => {
    const { nodes, client: door } = await startCluster(product, 1_000);
    for (const node of nodes) {
      node.way = "breaks";
      await scroll(door, 7);
    }
    for (const node of nodes) node.way = "answers";
    expect(await scroll(door, 30)).toBe(0);
    expect(Math.min(...nodes.map(answered))).toBeGreaterThan(0);
  });
});
