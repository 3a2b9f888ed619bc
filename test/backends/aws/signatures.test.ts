// Signed requests in front of Amazon's own verifier (botocore), behind which stand OpenSearch 3 and Prometheus 3: the suites of
// conformance pass through it, one layout each, and what it refuses is told in one sentence.
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import type { AwsCredentials } from "#resolvers/http/aws.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { parse } from "#src/log-query/parse.ts";
import { kubernetesStoreSuite } from "../../conformance/kubernetes.ts";
import { model, neighbour } from "../../conformance/kubernetes-fixture.ts";
import { logStoreSuite } from "../../conformance/logs.ts";
import { nameSeries, printOpenMetrics } from "../../conformance/metrics/fixture.ts";
import { metricStoreSuite } from "../../conformance/metrics.ts";
import { describeRollups } from "../../conformance/rollups.ts";
import { spanStoreSuite } from "../../conformance/spans.ts";
import { type AwsVerifier, startAwsVerifier } from "../../support/aws-verifier.ts";
import { dataPrepperLogs } from "../../support/elastic/log-shippers.ts";
import { dataPrepper } from "../../support/elastic/span-shippers/data-prepper.ts";
import { openCluster } from "../../support/elastic/test-index.ts";
import { testIO } from "../../support/io.ts";
import { expose, scrape } from "../../support/prometheus/kubernetes-exporters.ts";
import { printOpenMetrics as printSeries } from "../../support/prometheus/openmetrics.ts";
import { never } from "../../support/signals.ts";
import { createSource, range } from "../elastic/log-cluster.ts";
import { createLogSubject, createSpanSubject } from "../elastic/store-subjects.ts";
import { startFilled } from "../prometheus/filled-server.ts";
import { isShort, named, namedPrometheus } from "../selected-servers.ts";

const region = "eu-central-1";
const first = {
  accessKeyId: "AKIDFIRST",
  secretAccessKey: "wJalr/XUtnFEMI+first",
  sessionToken: "a/token+of=one",
};
const second = { accessKeyId: "AKIDSECOND", secretAccessKey: "wJalr/XUtnFEMI+second" };
/** What Amazon's library would find; it is large, and not among the dependencies. */
const found: { now: AwsCredentials } = { now: first };
vi.mock("#resolvers/http/aws.ts", async (load) => {
  const own = await load<typeof import("#resolvers/http/aws.ts")>();
  return {
    ...own,
    createAwsLogin: (options: Parameters<typeof own.createAwsLogin>[0]) =>
      own.createAwsLogin({ ...options, loadCredentials: async () => async () => found.now }),
  };
});

const keysOf = (...credentials: readonly AwsCredentials[]) =>
  Object.fromEntries(
    credentials.map(({ accessKeyId, secretAccessKey, sessionToken }) => [
      accessKeyId,
      { secret: secretAccessKey, token: sessionToken },
    ]),
  );
const signed = ({ url }: AwsVerifier, service: "es" | "aps") => ({
  url,
  timeout: "60s",
  auth: { aws: { region, service } },
});

/** Every request was signed as Amazon wants it. */
async function endVerifier(verifier: AwsVerifier): Promise<void> {
  const { passed, refused } = await verifier.count();
  verifier.stop();
  expect(refused).toBe(0);
  expect(passed).toBeGreaterThan(100);
}

describe.each(named().filter(({ name }) => name === "os3"))("$name, signed", ({ url }) => {
  const index = "readout-rollups-signed";
  let verifier: AwsVerifier;
  /** Of the rollups. */
  let cluster: ReturnType<typeof open>;
  /** What a test writes goes past the verifier, what the store asks and writes goes through it. */
  const open = () => openCluster(url, undefined, signed(verifier, "es"));
  beforeAll(async () => {
    verifier = await startAwsVerifier(url, region, "es");
    await verifier.set({ keys: keysOf(first) });
    cluster = open();
  });
  afterAll(async () => {
    await cluster.remove(`${index}*`);
    await cluster.close();
    await endVerifier(verifier);
  });

  const logs = createLogSubject(
    "signed",
    {
      name: "data-prepper",
      shipper: dataPrepperLogs,
      excuses: {
        "script unindexable": { reason: "servers refuse such documents", failure: /a document was refused/ },
      },
    },
    open,
  );
  // They take longest, and differ from those of spans in their bodies alone, which are signed by their hashes.
  if (!isShort) logStoreSuite(logs);
  spanStoreSuite(
    createSpanSubject(
      "signed",
      {
        shipper: dataPrepper,
        service: "serviceName",
        lacks: { count: "only Elastic APM compresses spans" },
      },
      open,
    ),
    1,
  );
  describeRollups("an index", {
    open: async () => {
      await cluster.remove(`${index}*`);
      const store = cluster.backend.openRollups?.(index);
      if (store === undefined) throw new Error("no store of rollups");
      return store;
    },
    refresh: async () => void (await cluster.request("POST", `/${index}/_refresh`)),
  });

  test("names that have to be encoded", async () => {
    const name = "größe";
    await cluster.remove(`${name}-*`);
    await cluster.createIndex(`${name}-1`, dataPrepperLogs.definition);
    const limits = { expectedLines: 10, documentLimit: 10, tieLimit: 10 };
    const query = { range, filter: parse('message="a+b c"'), order: "asc", ...limits } as const;
    const batches = cluster.store.lines({ sources: [createSource(`${name}-*`)], ...query }, never);
    // An answer, though an empty one: the verifier has let each request through.
    for await (const batch of batches) expect(batch).toEqual([]);
    await cluster.remove(`${name}-*`);
  });
});

for (const server of namedPrometheus().filter(({ name }) => name === "prom3")) {
  /** A server with these samples, behind a verifier. */
  const openFilled = async (filling: Parameters<typeof startFilled>[1]) => {
    const { url, stop } = await startFilled(server, filling);
    const verifier = await startAwsVerifier(url, region, "aps");
    await verifier.set({ keys: keysOf(first) });
    const backend = prometheus.create("amazon", prometheus.parseConfig(signed(verifier, "aps")), testIO);
    return {
      stores: backend.stores,
      stop: async () => {
        await backend.close();
        await stop();
        await endVerifier(verifier);
      },
    };
  };

  metricStoreSuite({
    name: `${server.name}, signed`,
    start: async (families) => {
      const { stores, stop } = await openFilled({
        printText: () => printOpenMetrics(families),
        listSeries: () => nameSeries(families),
      });
      if (stores.metrics === undefined) throw new Error("no metric store");
      return { store: stores.metrics, match: (tenant) => ({ tenant }), stop };
    },
  });

  const labels = { model: { cluster: "model" }, neighbour: { cluster: "neighbour" } };
  kubernetesStoreSuite({
    name: `${server.name}, signed`,
    scrape,
    start: async () => {
      const series = [...expose(model, labels.model), ...expose(neighbour, labels.neighbour)];
      const { stores, stop } = await openFilled({
        printText: () => printSeries(series),
        listSeries: () => series,
      });
      if (stores.kubernetes === undefined) throw new Error("no Kubernetes store");
      return { store: stores.kubernetes, labels, stop };
    },
  });
}

describe.each(named().filter(({ name }) => name === "os3"))(
  "what the verifier of $name refuses",
  ({ url }) => {
    let verifier: AwsVerifier;
    beforeAll(async () => {
      verifier = await startAwsVerifier(url, region, "es");
    });
    afterAll(() => verifier.stop());
    const open = () => elastic.create("amazon", elastic.parseConfig(signed(verifier, "es")), testIO);
    const readProduct = async ({ probe }: ReturnType<typeof open>) => (await probe(never)).product;
    /** The product, or the sentence of the failure. */
    const tell = async (backend = open()) => {
      try {
        return await readProduct(backend);
      } catch (error) {
        return error instanceof Error ? error.message : String(error);
      } finally {
        await backend.close();
      }
    };
    /** Twenty at once. */
    const askMany = (backend: ReturnType<typeof open>) =>
      Promise.all(Array.from({ length: 20 }, () => readProduct(backend)));
    const answered = Array(20).fill("OpenSearch");

    test.each([
      [3_600, "behind"],
      [-3_600, "ahead"],
    ])("a clock that is %d s off", async (ahead, word) => {
      found.now = first;
      await verifier.set({ keys: keysOf(first), ahead });
      expect(await tell()).toMatch(
        new RegExp(
          `^AWS refuses the signature for its time: the clock of this machine is 3[56]\\d\\d s ${word} \\(\\d{4}-[^)]+\\)$`,
        ),
      );
      await verifier.set({ ahead: ahead / 20 });
      expect(await tell()).toBe("OpenSearch");
    });

    test("withdrawn credentials, until there are new ones", async () => {
      found.now = first;
      await verifier.set({ keys: keysOf(first), ahead: 0 });
      const backend = open();
      expect(await askMany(backend)).toEqual(answered);
      // Others are there before the old ones are withdrawn, as Amazon does it: no request fails.
      found.now = second;
      await verifier.set({ keys: keysOf(second) });
      expect(await askMany(backend)).toEqual(answered);
      await verifier.set({ keys: keysOf(first) });
      expect(await tell(backend)).toBe(
        "AWS refuses the credentials: they have expired or were withdrawn, and there are no others",
      );
    });

    test("a secret that does not fit the key", async () => {
      found.now = { ...first, secretAccessKey: second.secretAccessKey };
      await verifier.set({ keys: keysOf(first) });
      expect(await tell()).toMatch(/^AWS refuses the signature: .*eu-central-1 or service es is wrong$/);
    });
  },
);
