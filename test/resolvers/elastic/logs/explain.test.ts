// The explanation of each leaf agrees with the bounds that it compiles to, for any query and mapping, and the recorder
// reports the requests that the source received.
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { describeProduct, type Product } from "#resolvers/elastic/client/product.ts";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { logLayouts } from "#resolvers/elastic/layout/log-layout.ts";
import { explainLeaves } from "#resolvers/elastic/logs/explain.ts";
import { type IndexMetadata, opaqueMetadata } from "#resolvers/elastic/mapping/mapping.ts";
import { compileBounds } from "#resolvers/elastic/query/filter-compiler.ts";
import { createGuard, guardDefaults } from "#resolvers/http/guard.ts";
import { waitForTurn } from "#src/core/async/turns.ts";
import { requireKey } from "#src/core/collections.ts";
import { fromMillis } from "#src/core/time.ts";
import { type Compare, type Filter, listComparisons } from "#src/log-query/ast.ts";
import { parse } from "#src/log-query/parse.ts";
import { print } from "#src/log-query/print.ts";
import type { LeafPlan } from "#src/store/logs.ts";
import { type RecordedRequest, type Recorder, runWithRecorder } from "#src/telemetry/request-recorder.ts";
import { dynamicDefinition, mappedDefinition, query } from "../../../exactness/corpus.ts";
import { readIndexMetadata } from "../../../support/elastic/index-metadata.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { testIO } from "../../../support/io.ts";
import { sampleRuns } from "../../../support/law-runs.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";

const ecs = requireKey(logLayouts, "ecs");
const product = describeProduct("Elasticsearch", "8.19.8");
const subjects = [
  ["Elasticsearch", product, "8190899"],
  ["OpenSearch", describeProduct("OpenSearch", "2.19.1"), "136408127"],
] as const;

const knownTo = (created: string, product: "elasticsearch" | "opensearch") =>
  readIndexMetadata({
    "logs-a": index(mappedDefinition(product, "8.19.8"), created),
    "logs-b": index(dynamicDefinition, created),
    "logs-c": index(dynamicDefinition, created),
  });
function index(definition: object, created: string) {
  const { mappings } = definition as { mappings: object };
  return { mappings, settings: { index: { number_of_shards: "1", version: { created } } } };
}
const all = { match_all: {} };
const never = new AbortController().signal;
const explain = (filter: Filter, known: IndexMetadata, product: Product, signal = never) =>
  explainLeaves(filter, [{ layout: ecs, groups: known.groups }], known, product, signal);

/** Checks a plan against the bounds of its leaf. Returns in how many groups the index decides it. */
function checkPlan({ leaf, by, why, indices }: LeafPlan, known: IndexMetadata, product: Product): number {
  expect(why).not.toBe("");
  const groups = known.groups.filter((group) => indices.includes(group.indices[0] ?? ""));
  for (const group of groups) {
    const { lower, upper } = compileBounds(leaf, group, ecs, product);
    const same = JSON.stringify(lower) === JSON.stringify(upper);
    const excludes = JSON.stringify(upper) !== JSON.stringify(all);
    expect([print(leaf), by]).toEqual([print(leaf), same ? "index" : excludes ? "candidates" : "documents"]);
  }
  return by === "index" ? groups.length : 0;
}

describe.each(subjects)("explained leaves, %s", (_, product, created) => {
  const known = knownTo(created, product.name === "OpenSearch" ? "opensearch" : "elasticsearch");

  test("reports a leaf as decided by the index exactly when its bounds are equal, and covers every index", async () => {
    const runs = sampleRuns(1_000);
    let exact = 0;
    await fc.assert(
      fc.asyncProperty(query, async (text) => {
        const filter = parse(text);
        const plans = await explain(filter, known, product);
        for (const leaf of listComparisons(filter)) {
          const own = plans.filter((plan) => plan.leaf === leaf);
          expect(own.flatMap(({ indices }) => indices).sort()).toEqual(["logs-a", "logs-b", "logs-c"]);
          for (const plan of own) exact += checkPlan(plan, known, product);
        }
      }),
      { seed: 20_260_101, numRuns: runs },
    );
    // The property also holds where no plan is exact.
    expect(exact).toBeGreaterThan(runs / 20);
  });

  test("decides the query by the index when it decides every leaf", async () => {
    const runs = sampleRuns(1_000, { share: 2 });
    let decided = 0;
    await fc.assert(
      fc.asyncProperty(query, async (text) => {
        const filter = parse(text);
        const plans = await explain(filter, known, product);
        for (const group of known.groups) {
          const own = plans.filter(({ indices }) => indices.includes(group.indices[0] ?? ""));
          if (own.some(({ by }) => by !== "index")) continue;
          const { lower, upper } = compileBounds(filter, group, ecs, product);
          expect(lower).toEqual(upper);
          decided += 1;
        }
      }),
      { seed: 20_260_102, numRuns: runs },
    );
    expect(decided).toBeGreaterThan(runs / 100);
  });
});

test("ends once nobody waits for the explanation", async () => {
  const stop = new AbortController();
  const gone = new Error("gone");
  const filter = parse("a=1 OR b=2 OR c=3 OR d=4");
  await countTurns(async () => {
    const explained = explain(filter, knownTo("8190899", "elasticsearch"), product, stop.signal);
    void waitForTurn().then(() => stop.abort(gone));
    await expect(explained).rejects.toBe(gone);
  });
});

const reasons: readonly (readonly [query: string, by: string, why: RegExp])[] = [
  ["b=true", "candidates", /^b is boolean, and .*_ignored/],
  ["k:foo", "candidates", /^k is keyword, and .*_ignored/],
  ["short=abcdefgh", "candidates", /values over 5 characters are not in the index/],
  ["t=foo", "candidates", /^t is text, and the index knows its words, not its text$/],
  ["n=200", "candidates", /^n is long, and numbers are rounded in the index/],
  ["n>200", "candidates", /rounded/],
  ["unknown=foo", "documents", /^unknown is not mapped, and documents may have it all the same/],
  ["off.a=x", "documents", /off\.a in the index is also the key "off\.a"; off\.a is not mapped/],
  ["blind=x", "documents", /^blind is not searchable/],
  ["other=x", "documents", /^other is an alias, which no document has$/],
  ["deep.k=x", "candidates", /deep\.k in the index is also the key "deep\.k"; deep\.k is keyword/],
  ["nest.k=x", "candidates", /nested objects/],
  ["nest.0.k=x", "documents", /position in an array.*nest\.0\.k is not mapped/],
  ["filled=x", "candidates", /null_value, copy_to/],
  ["low=x", "candidates", /normalizer/],
  ["flat.a=x", "candidates", /keys below it are whole values/],
  ["message:foo", "candidates", /message is the first of message, event\.original/],
  ["severity=error", "candidates", /compared as answered/],
  ["severity=nothing", "index", /^no line can satisfy it$/],
  ['k=""', "documents", /only the document knows an empty text/],
  ["k>5", "candidates", /not ordered as numbers/],
];
describe("explained leaf", () => {
  test.each(reasons)("explains %s: %s, because %s", async (text, by, why) => {
    const plans = await explain(parse(text), knownTo("8190899", "elasticsearch"), product);
    const plan = plans.find(({ indices }) => indices.includes("logs-a"));
    expect(plan?.by).toBe(by);
    expect(plan?.why).toMatch(why);
  });

  test("leaves every leaf to the documents when mappings may not be read", async () => {
    expect(await explain(parse("k=a n>1"), opaqueMetadata, product)).toMatchObject([
      { by: "documents", why: expect.stringContaining("may not be read") },
      { by: "documents" },
    ]);
  });

  test("lists leaves from left to right", () => {
    const filter: Filter = parse("(a=1 OR b=2) c=3");
    expect(listComparisons(filter).map((leaf: Compare) => leaf.value)).toEqual(["1", "2", "3"]);
  });
});

// ---- Recording ----------------------------------------------------------------------------------------------

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
  fake = undefined;
});

function createLedger() {
  const sent: RecordedRequest[] = [];
  const read: object[] = [];
  const recorder: Recorder = {
    recordRequest: (one) => void sent.push(one),
    recordDocuments: (part) => void read.push(part),
    recordSamples: () => {},
  };
  return { recorder, sent, read };
}

describe("request recorder", () => {
  const hit = (id: number, k: string) => ({
    _index: "logs-1",
    _id: `${id}`,
    _source: { k },
    sort: [1_000 + id],
  });
  async function open() {
    fake = await openScriptedSource((response, request) => {
      const path = request.url ?? "";
      if (path === "/") return sendJson(response, { version: { number: "8.19.8" } });
      if (!path.includes("_search")) {
        const mappings = { properties: { "@timestamp": { type: "date" }, k: { type: "text" } } };
        return sendJson(response, { "logs-1": index({ mappings }, "8190899") });
      }
      return sendJson(response, {
        took: 1,
        timed_out: false,
        _shards: { total: 1, successful: 1, skipped: 0, failed: 0 },
        hits: { hits: [hit(1, "a b"), hit(2, "a"), hit(3, "b a")] },
      });
    });
    const settings = {
      url: fake.url,
      auth: { username: "elastic", password: "hunter2" },
      headers: { "X-Secret": "s3" },
    };
    return { fake, backend: elastic.create("elk", elastic.parseConfig(settings), testIO) };
  }
  const ask = (text: string, where?: string) => ({
    sources: [{ id: "app", index: "logs-*", layout: "ecs", tenantFilter: where }] as const,
    range: { from: fromMillis(0), to: fromMillis(10_000) },
    filter: parse(text),
    order: "asc" as const,
    expectedLines: 10,
    documentLimit: 100,
    tieLimit: 100,
  });
  const drain = async (rows: AsyncIterable<readonly unknown[]> | undefined) => {
    let count = 0;
    for await (const batch of rows ?? []) count += batch.length;
    return count;
  };

  test("records the requests without credentials, and the documents kept", async () => {
    const { fake, backend } = await open();
    const { recorder, sent, read } = createLedger();
    const signal = new AbortController().signal;
    const rows = await runWithRecorder(recorder, () => drain(backend.stores.logs?.lines(ask("k=a"), signal)));
    await backend.close();
    expect(rows).toBe(1);
    expect(read).toEqual([{ source: "app", documents: 3, kept: 1 }]);
    const recorded = sent.map(({ method, path, parameters, body }) => {
      const search = new URLSearchParams(parameters).toString();
      return { method, path: search === "" ? path : `${path}?${search}`, body: body ?? "" };
    });
    expect(recorded).toEqual(fake.requests);
    expect(sent.every(({ outcome, took }) => outcome === "ok" && took >= 0)).toBe(true);
    expect(JSON.stringify(sent)).not.toMatch(/hunter2|s3|authorization/i);
  });

  test("records nothing of concurrent requests", async () => {
    const { backend } = await open();
    const { recorder, sent, read } = createLedger();
    const signal = new AbortController().signal;
    const other = () =>
      drain(backend.stores.logs?.lines(ask("k=b", "service=theirs"), signal)).catch(() => 0);
    await Promise.all([
      other(),
      runWithRecorder(recorder, () => drain(backend.stores.logs?.lines(ask("k=a"), signal))),
      other(),
    ]);
    await backend.close();
    expect(sent.filter(({ path }) => path.includes("_search"))).toHaveLength(1);
    expect(JSON.stringify(sent)).not.toContain("theirs");
    expect(read).toHaveLength(1);
  });

  test("records a queued request for its own caller", async () => {
    const guard = createGuard("elk", { ...guardDefaults, concurrent: 1 }, testIO);
    const [first, second] = [createLedger(), createLedger()];
    const signal = new AbortController().signal;
    const run = (path: string) =>
      guard.run(
        true,
        signal,
        async () => void (await new Promise(setImmediate)),
        () => ({ method: "GET", path }),
      );
    await Promise.all([
      runWithRecorder(first.recorder, () => Promise.all([run("/1"), run("/2")])),
      runWithRecorder(second.recorder, () => run("/3")),
      run("/4"),
    ]);
    expect(first.sent.map(({ path }) => path)).toEqual(["/1", "/2"]);
    expect(second.sent.map(({ path }) => path)).toEqual(["/3"]);
  });

  test("records a failed request and its retry", async () => {
    fake = await openScriptedSource((response) => sendJson(response, {}, 503));
    const { recorder, sent } = createLedger();
    const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
    await expect(runWithRecorder(recorder, () => backend.probe(never))).rejects.toThrow("503");
    await backend.close();
    expect(sent.map(({ path, outcome }) => [path, outcome])).toEqual([
      ["/", "overloaded"],
      ["/", "overloaded"],
    ]);
  });
});
