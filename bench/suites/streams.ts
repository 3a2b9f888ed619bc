// Exports and live tails over a real Elasticsearch: an export against the raw scroll of the same documents in the same
// rounds, its memory at a million lines, and what 500 tails cost while lines come in.
import { type Agent, type IncomingMessage, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { start as startServer } from "../../test/servers/servers.ts";
import { filebeat, printDocument } from "../../test/support/elastic/filebeat.ts";
import { openCluster } from "../../test/support/elastic/test-index.ts";
import { type Call, send } from "../harness/http-client.ts";
import { readCpuMillis, readMemoryMegabytes, type Subject } from "../harness/process.ts";
import { calculateMedian, calculateQuantile, type Figure, summarise } from "../harness/report.ts";

interface Bench {
  readonly agent: Agent;
  readonly token: string;
  readonly quick: boolean;
  readonly serve: (yaml: readonly string[]) => Promise<{ subject: Subject; url: string }>;
}

/** README, "What it promises": an export at most so many times the raw scroll; a million lines; 500 tails on two cores. */
const floors = { scrollRatio: 1.5, exportMegabytes: 300, tailsCpuPercent: 100, delayMillis: 3_000 };

const index = "bench-lines";
const from = Date.UTC(2026, 0, 15);
/** A million lines: the same index as five sources, whose lines are told apart by their source. */
const sources = ["a", "b", "c", "d", "e"] as const;
const tails = 500;

export async function measureStreams(bench: Bench): Promise<readonly Figure[]> {
  const documents = bench.quick ? 20_000 : 200_000;
  const { ADDRESS } = process.env;
  const source = ADDRESS === undefined ? await startServer("es8") : { url: ADDRESS, stop: async () => {} };
  const cluster = openCluster(source.url);
  const all = sources.map((id) => `${id}: { index: ${index}, layout: ecs }`).join(", ");
  let server: { subject: Subject; url: string } | undefined;
  try {
    await cluster.remove(`${index}*`);
    await cluster.createIndex(index, filebeat);
    await cluster.createIndex(`${index}-live`, filebeat);
    for (let first = 0; first < documents; first += 10_000) {
      await cluster.write(
        index,
        Array.from({ length: Math.min(10_000, documents - first) }, (_, n) => [
          undefined,
          renderLine(first + n),
        ]),
      );
    }
    await cluster.request("POST", `/${index}/_forcemerge?max_num_segments=1`);
    server = await bench.serve([
      `backends: { es: { kind: elastic, url: "${source.url}" } }`,
      "tail: { per_token: 500 }",
      "sites: { bench: { logs: { backend: es, sources: {",
      `  ${all}, live: { index: ${index}-live, layout: ecs } } } } }`,
    ]);
    return [
      ...(await measureThroughput(bench, server, source.url, documents)),
      ...(await measureLongExport(bench, server, documents)),
      ...(await measureTails(bench, server, (index, body) =>
        cluster.request("POST", `/${index}/_bulk?refresh=true`, body),
      )),
    ];
  } finally {
    await server?.subject.stop();
    await cluster.remove(`${index}*`);
    await cluster.close();
    await source.stop();
  }
}

function renderLine(n: number, time = from + n * 7): string {
  return printDocument({
    time: new Date(time).toISOString(),
    message: `GET /products/${n % 977} 200 ${n % 313}ms`,
    severity: n % 50 === 0 ? "error" : "info",
    hostname: `web-${n % 12}`,
    group: "nginx.access",
    json: `{"http":{"response":{"status_code":200,"body":{"bytes":${n}}}},"trace":{"id":"${(n * 2_654_435_761).toString(16).padStart(32, "0")}"},"client":{"ip":"10.1.2.${n % 250}"}}`,
  });
}

function exportBody(sourceIds: readonly string[]): string {
  return JSON.stringify({
    site_id: "bench",
    source_ids: sourceIds,
    query: "",
    use_expressions: true,
    from: new Date(from).toISOString(),
    pagination: { per_page: 1, order: "ASC" },
  });
}

interface Read {
  readonly millis: number;
  readonly lines: number;
}

/** Lines of an answer, counted and dropped. @throws when it is not 200 or is cut */
function readExport(bench: Bench, url: string, accept: string, sourceIds: readonly string[]): Promise<Read> {
  const begin = performance.now();
  return new Promise((resolve, reject) => {
    const outgoing = sendPost(url, bench.token, accept, bench.agent, (response) => {
      let lines = 0;
      response.on("data", (chunk: Buffer) => {
        for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, at + 1)) lines += 1;
      });
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode !== 200 || !response.complete) reject(new Error("the export broke off"));
        else resolve({ millis: performance.now() - begin, lines });
      });
    });
    outgoing.on("error", reject).end(exportBody(sourceIds));
  });
}

function sendPost(
  url: string,
  token: string,
  accept: string,
  agent: Agent | undefined,
  answered: (response: IncomingMessage) => void,
) {
  const headers = { authorization: `Bearer ${token}`, accept };
  return request(`${url}/api/v2/logs/lines`, { method: "POST", headers, agent }, answered);
}

/** All documents as the source hands them out: a scroll in the same order, whose parts are read and dropped. */
async function readScroll({ agent }: Bench, url: string): Promise<Read> {
  const begin = performance.now();
  let lines = 0;
  let call: Call = {
    url: `${url}/${index}/_search?scroll=1m`,
    method: "POST",
    body: JSON.stringify({ size: 1_000, sort: [{ "@timestamp": "asc" }] }),
  };
  for (;;) {
    const { body } = await send(agent, call, true);
    const found = body.split('"_source"').length - 1;
    const id = /"_scroll_id":"([^"]+)"/.exec(body)?.[1];
    lines += found;
    if (found === 0) {
      const forget = { url: `${url}/_search/scroll`, body: JSON.stringify({ scroll_id: id }) };
      await fetch(forget.url, {
        method: "DELETE",
        body: forget.body,
        headers: { "content-type": "application/json" },
      });
      return { millis: performance.now() - begin, lines };
    }
    call = {
      url: `${url}/_search/scroll`,
      method: "POST",
      body: JSON.stringify({ scroll: "1m", scroll_id: id }),
    };
  }
}

async function measureThroughput(
  bench: Bench,
  { subject, url }: { subject: Subject; url: string },
  source: string,
  documents: number,
): Promise<readonly Figure[]> {
  const rounds = bench.quick ? 3 : 7;
  const check = ({ lines }: Read, header = 0) => {
    if (lines !== documents + header) throw new Error(`${lines} of ${documents} lines came`);
  };
  const measured = {
    scroll: [] as number[],
    ndjson: [] as number[],
    csv: [] as number[],
    cpu: [] as number[],
  };
  // The first of each warms what it goes through, and is not counted.
  for (let round = -1; round < rounds; round++) {
    const scroll = await readScroll(bench, source);
    const before = readCpuMillis(subject.pid);
    const ndjson = await readExport(bench, url, "application/x-ndjson", ["a"]);
    const cpu = readCpuMillis(subject.pid) - before;
    const csv = await readExport(bench, url, "text/csv", ["a"]);
    check(scroll);
    check(ndjson);
    check(csv, 1);
    if (round < 0) continue;
    measured.scroll.push(scroll.millis);
    measured.ndjson.push(ndjson.millis / scroll.millis);
    measured.csv.push(csv.millis / scroll.millis);
    measured.cpu.push((cpu * 1_000) / documents);
  }
  const floor = floors.scrollRatio;
  const perSecond = (documents / calculateMedian(measured.scroll)) * 1_000;
  return [
    { name: "raw scroll of the source", unit: "lines/s", value: perSecond },
    { name: "export as NDJSON / raw scroll", unit: "×", ...summarise(measured.ndjson), floor },
    { name: "export as CSV / raw scroll", unit: "×", ...summarise(measured.csv), floor },
    { name: "export as NDJSON: CPU a line", unit: "µs", ...summarise(measured.cpu) },
  ];
}

async function measureLongExport(
  bench: Bench,
  { subject, url }: { subject: Subject; url: string },
  documents: number,
): Promise<readonly Figure[]> {
  const { lines, millis } = await readExport(bench, url, "application/x-ndjson", sources);
  if (lines !== documents * sources.length) throw new Error(`${lines} lines came`);
  return [
    {
      name: `export of ${lines.toLocaleString("en")} lines of five sources: peak RSS`,
      unit: "MB",
      value: readMemoryMegabytes(subject.pid, "VmHWM"),
      floor: floors.exportMegabytes,
      note: `${(millis / 1_000).toFixed(1)} s; the most since the start`,
    },
  ];
}

/** 500 tails of one source, a tenth of them with a query of their own, while 100 lines a second come in. */
async function measureTails(
  bench: Bench,
  { subject, url }: { subject: Subject; url: string },
  write: (index: string, body: string) => Promise<unknown>,
): Promise<readonly Figure[]> {
  const delays: number[] = [];
  const received = new Array<number>(tails).fill(0);
  const requests = await Promise.all(Array.from({ length: tails }, (_, n) => openTail(n)));
  const seconds = bench.quick ? 5 : 30;
  await sleep(2_000);
  const before = readCpuMillis(subject.pid);
  const begin = performance.now();
  for (let round = 0; round < seconds * 2; round++) {
    const started = performance.now();
    const body = Array.from(
      { length: 50 },
      (_, n) => `{"create":{}}\n${renderLine(round * 50 + n, Date.now())}\n`,
    );
    await write(`${index}-live`, body.join(""));
    await sleep(Math.max(0, 500 - (performance.now() - started)));
  }
  const cpu = readCpuMillis(subject.pid) - before;
  const spent = performance.now() - begin;
  await sleep(5_000);
  for (const one of requests) one.destroy();
  const lines = seconds * 100;
  received.forEach((count, n) => {
    const wanted = n % 10 === 9 ? lines / 50 : lines;
    if (count !== wanted) throw new Error(`tail ${n} received ${count} of ${wanted} lines`);
  });
  return [
    {
      name: `${tails} tails, 100 lines a second: CPU of the server`,
      unit: "% of a core",
      value: (cpu / spent) * 100,
      floor: floors.tailsCpuPercent,
      note: `${((lines / seconds) * tails * 0.9 + (lines / seconds / 50) * tails * 0.1).toFixed(0)} events a second`,
    },
    {
      name: `${tails} tails: a line's time to its arrival, p50`,
      unit: "ms",
      value: calculateMedian(delays),
    },
    {
      name: `${tails} tails: a line's time to its arrival, p99`,
      unit: "ms",
      value: calculateQuantile(delays, 0.99),
      floor: floors.delayMillis,
    },
  ];

  function openTail(n: number): Promise<{ destroy(): unknown }> {
    const query = n % 10 === 9 ? "severity=error" : "";
    const body = JSON.stringify({
      site_id: "bench",
      source_ids: ["live"],
      query,
      use_expressions: true,
      pagination: { per_page: 1, order: "ASC" },
    });
    return new Promise((resolve, reject) => {
      const outgoing = sendPost(url, bench.token, "text/event-stream", undefined, (response) => {
        if (response.statusCode !== 200) reject(new Error(`a tail answered ${response.statusCode}`));
        let rest = "";
        response.setEncoding("latin1").on("data", (chunk: string) => {
          const text = rest + chunk;
          const events = text.split("\n\n");
          rest = events.pop() ?? "";
          for (const event of events) {
            if (!event.startsWith("event: line")) continue;
            received[n] = (received[n] ?? 0) + 1;
            if (n % 100 !== 0) continue;
            const stamp = /"timestamp":"([^"]+)"/.exec(event)?.[1] ?? "";
            delays.push(Date.now() - Date.parse(stamp));
          }
        });
        response.on("error", () => {});
        resolve(outgoing);
      });
      outgoing.on("error", reject).end(body);
    });
  }
}
