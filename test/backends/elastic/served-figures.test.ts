// A program that keeps figures of a site in two clusters, whose partner lies in one of them: it answers what it could not read, and
// what a program answers that reads all.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { hour, minute, printInstant } from "#src/core/time.ts";
import { createRandom } from "../../conformance/trace-fixture.ts";
import { jaeger } from "../../support/elastic/span-shippers/jaeger.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { endAll, startReadout } from "../../support/process.ts";
import { at, base, createSpan } from "../../tracing/span-builder.ts";
import { named } from "../selected-servers.ts";

const prefix = "served";
const figures = "readout-served-figures";
const token = "secret-of-the-map";
const requests = 4_000;
/** The program answers from figures where that takes fewer documents than this, and reads nothing else. */
const documents = 3_000;

const [one, other] = ["es7", "os3"].flatMap((name) => named().find((server) => server.name === name) ?? []);

describe.runIf(one !== undefined && other !== undefined)("a site in es7 and os3", () => {
  if (one === undefined || other === undefined) return;
  let folder: string;
  let old: Cluster;
  let next: Cluster;
  const random = createRandom(7);
  // Two whole hours, which are over: the ends of other ranges would be read.
  const end = Math.floor((Date.now() - 5 * minute) / hour) * hour - base;
  const length = 2 * hour;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "readout-served-figures-"));
    [old, next] = [openCluster(one.url), openCluster(other.url)];
    for (const cluster of [old, next]) {
      await cluster.remove(`${prefix}-*`);
      await cluster.remove(`${figures}*`);
      for (const site of ["shop", "stock"])
        for (const [name, definition] of Object.entries(jaeger.indices(`${prefix}-${site}`)))
          await cluster.createIndex(name, definition);
    }
  });
  afterAll(async () => {
    endAll();
    for (const cluster of [old, next]) {
      await cluster.remove(`${prefix}-*`);
      await cluster.remove(`${figures}*`);
      await cluster.close();
    }
    await rm(folder, { recursive: true });
  });

  /** A request of the shop, its query, and its call to the stock. */
  function makeRequest(number: number, to: number) {
    const trace_id = number.toString(16).padStart(32, "a");
    const idOf = (span: number) => (number * 4 + span).toString(16).padStart(16, "0");
    const ofShop = { trace_id, site_id: "shop", service_name: "shop", to: to - 1 };
    const status_code = number % 50 === 0 ? ("ERROR" as const) : ("OK" as const);
    return [
      createSpan({ ...ofShop, span_id: idOf(0), span_kind: "server", from: to - 20, to, status_code }),
      ...["db", "stock"].map((peer, at) => {
        const ids = { span_id: idOf(at + 1), parent_span_id: idOf(0) };
        return createSpan({ ...ofShop, ...ids, peer, span_kind: "client", from: to - 5 - (number % 7) });
      }),
      createSpan({
        trace_id,
        site_id: "stock",
        span_id: idOf(3),
        parent_span_id: idOf(2),
        span_kind: "server",
        service_name: "stock",
        from: to - 4,
        to: to - 2,
      }),
    ];
  }
  async function write(first: number, count: number): Promise<void> {
    const written = new Map<Cluster, Map<string, [undefined, string][]>>(
      [old, next].map((one) => [one, new Map()]),
    );
    for (let number = first; number < first + count; number += 1) {
      for (const span of makeRequest(number, end - Math.floor(random() * length))) {
        const clusters =
          span.site_id === "stock" ? [next] : number % 10 === 0 ? [old, next] : [random() < 0.5 ? old : next];
        for (const { index, document } of jaeger.write(`${prefix}-${span.site_id}`, [span])) {
          for (const cluster of clusters) {
            const own = written.get(cluster);
            own?.set(index, [...(own.get(index) ?? []), [undefined, document]]);
          }
        }
      }
    }
    for (const [cluster, byIndex] of written)
      for (const [index, own] of byIndex) await cluster.write(index, own);
  }

  async function serve(
    name: string,
    settings: string,
  ): Promise<(route: string, body?: object) => Promise<Answer>> {
    const file = join(folder, `${name}.yaml`);
    const place = (backend: string, site: string) =>
      `{ backend: ${backend}, index: "${jaeger.pattern(`${prefix}-${site}`)}", layout: jaeger }`;
    await writeFile(
      file,
      `listen: 127.0.0.1:0
tokens: [{ user: map, sha256: "${hashToken(token)}", sites: "*" }]
backends: { old: { kind: elastic, url: "${one?.url}" }, next: { kind: elastic, url: "${other?.url}" } }
sites:
  shop: { retention: 4h, traces: [${place("old", "shop")}, ${place("next", "shop")}] }
  stock: { retention: 4h, traces: ${place("next", "stock")} }
${settings}
`,
    );
    const address = await startReadout("serve", "--config", file).listening;
    const range = { from: printInstant(at(end - length)), to: printInstant(at(end - 1e-6)) };
    return async (route, body = {}) => {
      const answer = await fetch(`${address}/api/v2/tracing/${route}`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ site_id: "shop", ...range, ...body }),
      });
      return { status: answer.status, body: await answer.json() };
    };
  }

  test("is answered about more than may be read, and as by reading", { timeout: 300_000 }, async () => {
    await write(0, requests);
    const ask = await serve(
      "kept",
      `limits: { rate: 100000, documents: ${documents} }
rollups: { backend: next, index: ${figures}, rate: 1 }`,
    );
    const read = await serve("read", "limits: { rate: 100000, documents: 1000000, rollup_bytes: 0 }");
    const refused = await serve("refused", `limits: { rate: 100000, documents: ${documents} }`);
    const compare = async () => {
      for (const [route, body] of questions) {
        const exact = await read(route, body);
        expect(exact.status, route).toBe(200);
        const answer = () => ask(route, body);
        await expect.poll(answer, { interval: 500, message: route }).toMatchObject({ status: 200 });
        expect(withoutPercentiles((await answer()).body), route).toEqual(withoutPercentiles(exact.body));
      }
    };
    expect((await refused("site_edges")).status).toBe(422);
    await compare();
    const map = await ask("site_edges");
    expect(map.body).toMatchObject({ downstream: [{ service: "stock", count: requests }] });
    await write(requests, 20);
    await compare();
    expect((await ask("site_edges")).body).toMatchObject({ downstream: [{ count: requests + 20 }] });
  });
});

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

const questions: readonly (readonly [string, object?])[] = [
  ["site_edges"],
  ["action_edges", { namespace: "shop/web", action: "work" }],
  ["actions"],
  ["slow_events", { limit: 100 }],
];

/** Percentiles may differ by 2 %, and means in their last digits. */
function withoutPercentiles(body: unknown): unknown {
  return JSON.parse(
    JSON.stringify(body, (name, value: unknown) => {
      if (/^p_?9/.test(name)) return undefined;
      return typeof value === "number" ? Number(value.toPrecision(9)) : value;
    }),
  );
}
