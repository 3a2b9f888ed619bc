// Writes spans to a real server and reads them back, for the tests of one file.
import { afterAll, beforeAll } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import type { Span } from "#src/core/rows.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { SpanLookup, SpanSelection, SpanSource } from "#src/store/spans.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { type ModelSpan, toSpan } from "../../conformance/trace-fixture.ts";
import { apm7 } from "../../support/elastic/span-shippers/apm.ts";
import { dataPrepper } from "../../support/elastic/span-shippers/data-prepper.ts";
import { otel } from "../../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../../support/elastic/span-shippers/shipper.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import type { NamedServer } from "../selected-servers.ts";

export const start = Date.UTC(2026, 0, 15, 12);
export const at = (millis: number, nanos = 0n): Instant => (fromMillis(start + millis) + nanos) as Instant;
export const range = { from: at(-3_600_000), to: at(3_600_000) };
export const never = new AbortController().signal;
export const plenty = () => createBudget(1_000_000);
export const trace = "00000000000000000af7651916cd43dd";
export const id = (n: number): string => n.toString(16).padStart(16, "0");

export function make(over: Partial<ModelSpan>): ModelSpan {
  return {
    site: "shop",
    trace,
    id: id(0xa1),
    service: "shop-web",
    name: "GET /cart",
    kind: "server",
    start: at(0),
    end: at(10),
    status: "OK",
    attributes: {},
    resource: {},
    events: [],
    links: [],
    count: 1,
    ...over,
  };
}

/** A shipper whose indices this server takes, and the field of its service. */
export function chooseShipper({ name }: Pick<NamedServer, "name">): {
  readonly shipper: SpanShipper;
  readonly service: string;
} {
  if (name === "es7") return { shipper: apm7, service: "service.name" };
  if (name === "os2" || name === "os3") return { shipper: dataPrepper, service: "serviceName" };
  return { shipper: otel, service: "resource.attributes.service.name" };
}

/** Opens a cluster for the tests of a file, whose indices begin with `prefix`. */
export function useSpanCluster(url: string, prefix: string) {
  let cluster: Cluster;
  beforeAll(() => {
    cluster = openCluster(url);
  });
  afterAll(async () => {
    await cluster.remove(`${prefix}-*`);
    await cluster.close();
  });

  const source = (shipper: SpanShipper, over: Partial<SpanSource> = {}): SpanSource => ({
    ...buildSpanSource("shop", { index: shipper.pattern(prefix), layout: "auto" }),
    ...over,
  });
  async function write(shipper: SpanShipper, models: readonly ModelSpan[]): Promise<void> {
    const documents = shipper.write(prefix, models.map(toSpan));
    for (const [index, shipped] of Map.groupBy(documents, ({ index }) => index)) {
      await cluster.write(
        index,
        shipped.map(({ document }) => [undefined, document]),
      );
    }
  }
  /** A new cluster object, because the old one remembers the mappings of deleted indices. */
  async function empty(shipper: SpanShipper): Promise<void> {
    await cluster.remove(`${prefix}-*`);
    await cluster.close();
    cluster = openCluster(url);
    for (const [index, definition] of Object.entries(shipper.indices(prefix))) {
      await cluster.createIndex(index, definition);
    }
  }
  // One signal per call, like one per request: within a request, mappings may be served from the cache.
  const find = (from: SpanSource, of: SpanLookup["of"]) =>
    readAllSpans(
      cluster.traces.find({ sources: [from], of, budget: plenty() }, new AbortController().signal),
    );
  const scan = (from: SpanSource, select: SpanSelection = "all", over = range) => {
    const query = { sources: [from], range: over, select, budget: plenty() } as const;
    return readAllSpans(cluster.traces.scan(query, new AbortController().signal));
  };
  return {
    get cluster() {
      return cluster;
    },
    prefix,
    source,
    write,
    empty,
    find,
    scan,
  };
}

async function readAllSpans(batches: AsyncIterable<readonly Span[]>): Promise<Span[]> {
  return (await Array.fromAsync(batches)).flat();
}
