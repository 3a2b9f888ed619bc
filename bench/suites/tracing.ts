// Tracing over a real Elasticsearch: a large trace beside a hand-written adapter and beside the documents themselves, and
// actions over a million spans beside the smallest set of raw requests that yields every column, `has_npo` included, on
// the same server in the same rounds. The server is the tests' `es8`, on a port of its own; it is started here and
// filled with the same spans each time.
import type { Agent } from "node:http";
import { join } from "node:path";
import { start as startServer } from "../../test/servers/servers.ts";
import { otel } from "../../test/support/elastic/span-shippers/otel.ts";
import {
  actions,
  hour,
  largeSpans,
  largeTrace,
  spansBegun,
  spansOfRequest,
  various,
} from "../fixtures/spans.ts";
import { type Call, send } from "../harness/http-client.ts";
import {
  awaitAnnouncement,
  readCpuMillis,
  readMemoryMegabytes,
  runToEnd,
  type Subject,
  start,
} from "../harness/process.ts";
import { calculateMedian, type Figure, summarise } from "../harness/report.ts";

interface Bench {
  readonly agent: Agent;
  readonly token: string;
  readonly rounds: number;
  readonly quick: boolean;
  readonly folder: string;
  readonly serve: (yaml: readonly string[]) => Promise<{ subject: Subject; url: string }>;
}

/** The most that each figure may be (README, "What it promises"). */
const floors = { trace: 1.25, actions: 1.3, scanMemory: 1.25 };

/** What the columns of actions take at the least, in order: `next` makes a request of what the one before answered. */
type Raw = readonly ((answer: string) => object)[];
const kept = (...queries: readonly object[]) => ({ bool: { filter: queries } });

/**
 * The figures, and the N+1: parents with five queries, and of a few of them the queries and the spans above. Each shard
 * lists so many parents that none is left out, which `verify` holds them to: a shorter list costs a third, and misses
 * parents whose queries lie on several shards.
 */
const rawRequests: Raw = [
  () => ({
    size: 0,
    track_total_hits: true,
    query: kept(
      { range: { "@timestamp": { gte: spansBegun, lte: spansBegun + hour, format: "epoch_millis" } } },
      { bool: { must_not: [{ exists: { field: "parent_span_id" } }] } },
    ),
    aggs: {
      actions: {
        composite: {
          size: 10_000,
          sources: ["kind", "status.code", "name", "attributes.appsignal.action_name"].map((field) => ({
            [field]: { terms: { field, missing_bucket: true } },
          })),
        },
        aggs: { length: { stats: { field: "duration" } } },
      },
    },
  }),
  () => ({
    size: 0,
    track_total_hits: false,
    query: kept({ term: { kind: "Client" } }, { exists: { field: "attributes.db.query.text" } }),
    aggs: {
      parents: { terms: { field: "parent_span_id", size: 10_000, shard_size: 250_000, min_doc_count: 5 } },
    },
  }),
  (answer) => {
    const { aggregations } = JSON.parse(answer) as {
      aggregations: { parents: { buckets: { key: string }[] } };
    };
    const parents = aggregations.parents.buckets.slice(0, 500).map(({ key }) => key);
    return { size: 5_000, query: kept({ terms: { parent_span_id: parents } }) };
  },
  (answer) => {
    const { hits } = JSON.parse(answer) as { hits: { hits: { _source: { parent_span_id: string } }[] } };
    const ids = [...new Set(hits.hits.map(({ _source }) => _source.parent_span_id))];
    return { size: 1_000, query: kept({ terms: { span_id: ids } }) };
  },
  (answer) => {
    const { hits } = JSON.parse(answer) as { hits: { hits: { _source: { parent_span_id: string } }[] } };
    const ids = [...new Set(hits.hits.map(({ _source }) => _source.parent_span_id))];
    return { size: 1_000, query: kept({ terms: { span_id: ids } }) };
  },
];

export async function measureTracing(bench: Bench): Promise<readonly Figure[]> {
  const { agent, token, quick, folder } = bench;
  const spans = quick ? 80_000 : 1_000_000;
  const requests = spans / spansOfRequest;
  const source = await startServer("es8");
  try {
    // So many that all their spans are more than one request may read.
    const perDay = quick ? 200 : 6_000;
    await fillApart(folder, [source.url, requests, perDay * various.days]);
    const yaml = [
      `backends: { es: { kind: elastic, url: "${source.url}", timeout: 60s } }`,
      "sites:",
      ...["bench", "days"].map(
        (site) => `  ${site}: { traces: { backend: es, index: "${otel.pattern(site)}", layout: otel } }`,
      ),
    ];
    const server = await bench.serve(yaml);
    const log = join(folder, "tracing-yardstick.log");
    const yardstick = start({
      arguments: [join(import.meta.dirname, "..", "baselines", "trace.ts"), source.url],
      core: 1,
      log,
    });
    const { url } = await awaitAnnouncement(yardstick, log);
    const body = JSON.stringify({ site_ids: ["bench"], trace_id: largeTrace });
    const trace = (base: string): Call => ({
      url: `${base}/api/v2/tracing/trace`,
      method: "POST",
      body,
      token,
    });
    const raw = async (asked: Raw): Promise<number> => {
      let answer = "";
      const before = performance.now();
      for (const next of asked) {
        const request = JSON.stringify(next(answer));
        const call: Call = {
          url: `${source.url}/bench-traces-*/_search?request_cache=false`,
          method: "POST",
          body: request,
        };
        answer = (await send(agent, call, true)).body;
      }
      JSON.parse(answer);
      return performance.now() - before;
    };
    const documents: Raw = [
      () => ({
        size: 10_000,
        track_total_hits: false,
        query: { term: { trace_id: largeTrace } },
        sort: ["_doc"],
      }),
    ];
    const range = { from: new Date(spansBegun).toISOString(), to: new Date(spansBegun + hour).toISOString() };
    const actionsCall: Call = {
      url: `${server.url}/api/v2/tracing/actions`,
      method: "POST",
      token,
      body: JSON.stringify({ site_id: "bench", ...range }),
    };
    const day = {
      from: new Date(spansBegun - 24 * hour).toISOString(),
      to: new Date(spansBegun).toISOString(),
    };
    const dayCall: Call = { ...actionsCall, body: JSON.stringify({ site_id: "days", ...day }) };
    const timed = async (call: Call): Promise<number> => (await send(agent, call)).millis;
    await verify(agent, trace(server.url), actionsCall, requests);
    await verifyRaw(source.url);
    await verifyDay(agent, dayCall);
    /** Ours may be answered from the server's cache of answers, which the raw requests go without. */
    const uncached = async (): Promise<number> => {
      await fetch(`${source.url}/_cache/clear?request=true`, { method: "POST" });
      return timed(actionsCall);
    };

    const large = await takeTurns(bench, 10, {
      ours: () => timed(trace(server.url)),
      yardstick: () => timed(trace(String(url))),
      direct: () => raw(documents),
    });
    const wide = await takeTurns({ ...bench, rounds: Math.min(bench.rounds, 9) }, 1, {
      ours: uncached,
      direct: () => raw(rawRequests),
    });
    const daily = await takeTurns({ ...bench, rounds: Math.min(bench.rounds, 5) }, 1, {
      ours: () => timed(dayCall),
    });
    const cpuBefore = readCpuMillis(server.subject.pid);
    await uncached();
    const cpu = readCpuMillis(server.subject.pid) - cpuBefore;
    await server.subject.stop();
    await yardstick.stop();
    const scans = await readLong(bench, await bench.serve(yaml), spans);
    const title = `trace of ${largeSpans.toLocaleString("en")} spans`;
    const counted = `actions over ${spans.toLocaleString("en")} spans`;
    return [
      ...summariseLatencies(title, large),
      compareRounds(`${title}, ours / yardstick: p50`, large.ours, large.yardstick, floors.trace),
      compareRounds(`${title}, ours / documents read directly: p50`, large.ours, large.direct),
      ...summariseLatencies(counted, wide),
      compareRounds(`${counted}, ours / raw requests: p50`, wide.ours, wide.direct, floors.actions),
      ...summariseLatencies(`actions of a day of ${various.days}, several queries each`, daily),
      { name: `${counted}, ours: CPU`, unit: "ms", value: cpu },
      ...scans,
    ];
  } finally {
    await source.stop();
  }
}

/** Memory after a scan that reads every span, and after one ten times as long, of the most that one request may read. */
async function readLong(
  { agent, token, quick }: Bench,
  { subject, url }: { subject: Subject; url: string },
  spans: number,
): Promise<readonly Figure[]> {
  const peaks: { readonly read: string; readonly megabytes: number }[] = [];
  for (const part of [0.04, 0.4]) {
    const inside = spans * part * (1 - 1 / spansOfRequest);
    const body = JSON.stringify({
      site_id: "bench",
      from: new Date(spansBegun).toISOString(),
      to: new Date(spansBegun + part * hour).toISOString(),
      excluded_attributes: ["bench.absent"],
    });
    const call: Call = { url: `${url}/api/v2/tracing/slow_events`, method: "POST", token, body };
    for (let sent = 0; sent < 2; sent++) {
      const rows: { count: number }[] = JSON.parse((await send(agent, call, true)).body);
      const counted = rows.reduce((sum, { count }) => sum + count, 0);
      if (Math.abs(counted / inside - 1) > 0.01)
        throw new Error(`${counted} of ${inside} spans were counted`);
    }
    peaks.push({ read: inside.toLocaleString("en"), megabytes: readMemoryMegabytes(subject.pid, "VmHWM") });
  }
  await subject.stop();
  const [short, long] = peaks.map(({ megabytes }) => megabytes);
  return [
    ...peaks.map(({ read, megabytes }) => {
      return { name: `slow events of ${read} spans, all read: peak RSS`, unit: "MB", value: megabytes };
    }),
    {
      name: "slow events, ten times the spans: peak RSS over that before",
      unit: "×",
      value: (long ?? Number.NaN) / (short ?? Number.NaN),
      // A quick run reads too little for the heap to have its full size before.
      floor: quick ? undefined : floors.scanMemory,
    },
  ];
}

/** By a process of its own, so that whoever measures has not a million documents' garbage to collect meanwhile. */
function fillApart(folder: string, arguments_: readonly (string | number)[]): Promise<void> {
  const program = join(import.meta.dirname, "..", "fixtures", "fill-spans.ts");
  return runToEnd([program, ...arguments_.map(String)], join(folder, "tracing-fill.log"));
}

/** Fast and wrong is no answer. */
async function verify(agent: Agent, trace: Call, actionsCall: Call, requests: number): Promise<void> {
  const spans: unknown[] = JSON.parse((await send(agent, trace, true)).body);
  if (spans.length !== largeSpans) throw new Error(`the trace has ${spans.length} spans`);
  const rows: { throughput: number; has_npo: boolean; action: string }[] = JSON.parse(
    (await send(agent, actionsCall, true)).body,
  );
  const sum = rows.reduce((total, { throughput }) => total + throughput, 0);
  const loops = rows.filter(({ has_npo }) => has_npo).map(({ action }) => action);
  if (rows.length !== actions || loops.length !== actions / 20 || sum > requests || sum < requests * 0.99) {
    throw new Error(`actions: ${rows.length} rows of ${sum} requests, ${loops.length} with an N+1`);
  }
}

async function verifyDay(agent: Agent, call: Call): Promise<void> {
  const { body } = await send(agent, call, true);
  const rows: { has_npo: boolean; action: string }[] = JSON.parse(body);
  const loops = rows.filter(({ has_npo }) => has_npo).map(({ action }) => action);
  if (rows.length !== various.actions || loops.join() !== "Various0#show")
    throw new Error(`actions of a day: ${body.slice(0, 500)}`);
}

/** The list of parents is whole. */
async function verifyRaw(url: string): Promise<void> {
  const [, crowds] = rawRequests;
  const body = JSON.stringify(crowds?.(""));
  const answer = await fetch(`${url}/bench-traces-*/_search`, {
    method: "POST",
    body,
    headers: { "content-type": "application/json" },
  });
  const { aggregations } = (await answer.json()) as {
    aggregations: { parents: { doc_count_error_upper_bound: number } };
  };
  const error = aggregations.parents.doc_count_error_upper_bound;
  if (error !== 0) throw new Error(`the raw list of parents may lack ${error} queries of each`);
}

/** Each in its turn, round after round; a round's figure is the median of its requests. */
async function takeTurns<Name extends string>(
  { rounds }: Pick<Bench, "rounds">,
  requests: number,
  runs: Readonly<Record<Name, () => Promise<number>>>,
): Promise<Readonly<Record<Name, readonly number[]>>> {
  const names = Object.keys(runs) as Name[];
  const measured = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<Name, number[]>;
  for (const name of names) await runs[name]();
  for (let round = 0; round < rounds; round++) {
    const turn = round % names.length;
    for (const name of [...names.slice(turn), ...names.slice(0, turn)]) {
      const times: number[] = [];
      for (let sent = 0; sent < requests; sent++) times.push(await runs[name]());
      measured[name].push(calculateMedian(times));
    }
  }
  return measured;
}

function summariseLatencies(
  title: string,
  measured: Readonly<Record<string, readonly number[]>>,
): readonly Figure[] {
  return Object.entries(measured).map(([name, rounds]) => ({
    name: `${title}, ${name}: p50`,
    unit: "ms",
    ...summarise(rounds),
  }));
}

function compareRounds(
  name: string,
  own: readonly number[],
  other: readonly number[],
  floor?: number,
): Figure {
  return { name, unit: "×", ...summarise(own.map((time, at) => time / (other[at] ?? Number.NaN))), floor };
}
