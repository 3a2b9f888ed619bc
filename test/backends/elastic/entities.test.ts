// Objects by their keys, as gateways ask for them, on real servers: two hundred cost the cluster as many searches as one, and
// what another tenant has in the same index is null exactly as what is not there.
import { createServer, request as sendRequest } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { fromMillis, type Instant, printMillis } from "#src/core/time.ts";
import type { ModelSpan } from "../../conformance/trace-fixture.ts";
import { toSpan } from "../../conformance/trace-fixture.ts";
import { filebeat, printDocument } from "../../support/elastic/filebeat.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { base, createSubject, token } from "../../wire/harness.ts";
import { onServers } from "../selected-servers.ts";
import { chooseShipper, make } from "./span-cluster.ts";

const count = 200;
const prefix = "entities";
const numbers = Array.from({ length: count }, (_, n) => n);
const isOther = (n: number) => n % 10 === 9;
const traceOf = (n: number) => (n + 1).toString(16).padStart(32, "0");

/** Hands requests on, and counts those for documents. */
async function openCountingProxy(target: string) {
  const seen = { searches: 0 };
  const proxy = createServer((incoming, answer) => {
    if (/_search|_msearch|_mget|_doc\b/.test(incoming.url ?? "")) seen.searches += 1;
    const { method = "GET", headers } = incoming;
    const outgoing = sendRequest(`${target}${incoming.url}`, { method, headers }, (own) => {
      answer.writeHead(own.statusCode ?? 500, own.headers);
      own.pipe(answer);
    });
    outgoing.on("error", () => answer.destroy());
    incoming.pipe(outgoing);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const address = proxy.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return { seen, url: `http://127.0.0.1:${port}`, close: () => proxy.close() };
}

onServers((server) => {
  const { shipper, service } = chooseShipper(server);
  let cluster: Cluster;
  let proxy: Awaited<ReturnType<typeof openCountingProxy>>;
  let ask: (keys: readonly object[], asked?: string) => Promise<readonly (Entity | null)[]>;

  interface Entity {
    readonly id?: string;
    readonly trace_id?: string;
    readonly revision?: string;
    readonly message?: string;
    readonly spans?: readonly { readonly span_id: string }[];
    readonly stats?: object;
  }

  beforeAll(async () => {
    proxy = await openCountingProxy(server.url);
    cluster = openCluster(server.url, undefined, { url: proxy.url });
    await cluster.remove(`${prefix}-*`);
    await writeLines(cluster);
    await writeSpans(cluster);
    const subject = createSubject({
      served: { sites: new Map([createSite("shop"), createSite("foreign")]) },
    });
    const fields = `{
      ... on LogLine { id message }
      ... on Trace { trace_id spans { span_id } }
      ... on Deploy { revision stats { throughput first_seen last_seen mean error_rate namespaces } }
    }`;
    const query = `query ($keys: [_Any!]!) { _entities(representations: $keys) ${fields} }`;
    ask = async (keys) => {
      proxy.seen.searches = 0;
      const answer = await subject.server.fetch("http://readout/graphql", {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ query, variables: { keys } }),
      });
      const { data, errors } = await answer.json();
      expect(errors, subject.logged()).toBeUndefined();
      return data._entities;
    };
  });
  afterAll(async () => {
    await cluster.remove(`${prefix}-*`);
    await cluster.close();
    proxy.close();
  });

  /** Both sites read the same indices, and are told apart by their tenant filters alone. */
  function createSite(id: "shop" | "foreign"): [string, Site] {
    const where = (field: string) => `${field}="${id}"`;
    const tenantFilter = where("service.name");
    const sources = new Map([["app", { id: "app", index: `${prefix}-lines`, layout: "ecs", tenantFilter }]]);
    const source = buildSpanSource(id, {
      index: shipper.pattern(prefix),
      layout: "auto",
      where: where(service),
    });
    const site: Site = {
      id,
      retention: 86_400_000,
      counterDefault: "cumulative",
      logs: { backend: "elk", store: cluster.store, sources },
      traces: { backend: "elk", store: cluster.traces, source },
    };
    return [id, site];
  }

  async function writeLines({ createIndex, write }: Cluster): Promise<void> {
    await createIndex(`${prefix}-lines`, filebeat);
    const documents = numbers.map((n): [string, string] => [
      `l${n}`,
      printDocument({
        time: printMillis(base + n * 37),
        message: `line ${n}`,
        json: JSON.stringify({ service: { name: isOther(n) ? "foreign" : "shop" } }),
      }),
    ]);
    await write(`${prefix}-lines`, documents);
  }

  async function writeSpans({ createIndex, write }: Cluster): Promise<void> {
    for (const [index, definition] of Object.entries(shipper.indices(prefix)))
      await createIndex(index, definition);
    const models = numbers.map((n): ModelSpan => {
      const at = (millis: number): Instant => fromMillis(base + n * 37 + millis);
      const named = { service: isOther(n) ? "foreign" : "shop", revision: `r${n % 40}` };
      return make({ trace: traceOf(n), ...named, start: at(0), end: at(10) });
    });
    const documents = shipper.write(prefix, models.map(toSpan));
    for (const [index, shipped] of Map.groupBy(documents, (one) => one.index)) {
      await write(
        index,
        shipped.map(({ document }) => [undefined, document]),
      );
    }
  }

  const keysOf = {
    LogLine: (n: number, site_id = "shop") => ({
      __typename: "LogLine",
      site_id,
      source_id: "app",
      timestamp: printMillis(base + n * 37),
      id: `${prefix}-lines/l${n}`,
    }),
    Trace: (n: number, site_id = "shop") => ({ __typename: "Trace", site_id, trace_id: traceOf(n) }),
    Deploy: (n: number, site_id = "shop") => ({ __typename: "Deploy", site_id, revision: `r${n % 40}` }),
  };
  const isThere = {
    LogLine: (n: number, one: Entity | null) => one?.message === `line ${n}`,
    Trace: (n: number, one: Entity | null) => one?.trace_id === traceOf(n) && one.spans?.length === 1,
    Deploy: (n: number, one: Entity | null) => one?.revision === `r${n % 40}` && one.stats !== undefined,
  };

  test.each(["LogLine", "Trace", "Deploy"] as const)(
    "200 keys of %s cost as many searches as one, and those of another tenant are null",
    async (type) => {
      const createKey = keysOf[type];
      // What is read of mappings is known then.
      await ask([createKey(0)]);
      const alone = await ask([createKey(0)]);
      const expected = proxy.seen.searches;
      expect(expected).toBeGreaterThan(0);
      expect(isThere[type](0, alone[0] ?? null)).toBe(true);
      const found = await ask(numbers.map((n) => createKey(n)));
      // Deploys are fewer, since their first and last requests are not searched for one by one.
      if (type === "Deploy") expect(proxy.seen.searches).toBeLessThanOrEqual(expected);
      else expect(proxy.seen.searches).toBe(expected);
      expect(found[0]).toEqual(alone[0]);
      for (const n of numbers) {
        if (isOther(n)) expect(found[n]).toBeNull();
        else expect(isThere[type](n, found[n] ?? null), `${n}`).toBe(true);
      }
      // A site that the token may not see, one that does not exist, and what neither has: nothing is searched for the first two.
      for (const site of ["foreign", "nowhere"]) {
        expect(await ask(numbers.map((n) => createKey(n, site)))).toEqual(numbers.map(() => null));
        expect(proxy.seen.searches).toBe(0);
      }
    },
  );
});
