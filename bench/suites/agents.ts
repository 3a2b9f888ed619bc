// A tool of `/mcp` against the REST route of the same rows, in turns on one server over a real Elasticsearch: what the protocol, the two
// forms of an answer, cursors, and the count of the lines that are left add. Also what loading it takes of memory.
import type { Agent } from "node:http";
import { start as startServer } from "../../test/servers/servers.ts";
import { otel } from "../../test/support/elastic/span-shippers/otel.ts";
import { fillSplitDay, range } from "../fixtures/split-day.ts";
import { type Call, send } from "../harness/http-client.ts";
import { readCpuMillis, readMemoryMegabytes } from "../harness/process.ts";
import { type Figure, summarise } from "../harness/report.ts";
import type { Server } from "../harness/servers.ts";

interface Bench {
  readonly agent: Agent;
  readonly token: string;
  readonly rounds: number;
  readonly serve: (yaml: readonly string[]) => Promise<Server>;
}

/** The most that a call may take of its REST route. */
const floor = 1.3;

interface Question {
  readonly title: string;
  readonly tool: string;
  readonly arguments: object;
  readonly route: string;
  readonly body: object;
}

const bounds = { start: range.from, end: range.to };
const askLines = (per_page: number): Question => ({
  title: `${per_page} lines`,
  tool: "get_log_lines",
  arguments: { ...bounds, per_page },
  route: "logs/lines",
  body: {
    ...range,
    site_id: "day",
    source_ids: ["app"],
    query: "",
    use_expressions: true,
    pagination: { per_page, order: "DESC", cursor: { time: null } },
  },
});
const fewLines = askLines(10);
const questions: readonly Question[] = [
  fewLines,
  askLines(50),
  {
    title: "20 traces",
    tool: "get_traces",
    arguments: { ...bounds, per_page: 20 },
    route: "tracing/traces/performance",
    body: {
      ...range,
      site_ids: ["day"],
      pagination: { per_page: 20, order: "DESC", cursor: { time: null } },
    },
  },
  {
    title: "20 slow events",
    tool: "get_slow_events",
    arguments: { ...bounds, limit: 20 },
    route: "tracing/slow_events",
    body: { ...range, site_id: "day", limit: 20 },
  },
];

export async function measureAgents(bench: Bench): Promise<readonly Figure[]> {
  const source = await startServer("es8");
  try {
    await fillSplitDay(source.url);
    const server = await bench.serve([
      `backends: { one: { kind: elastic, url: "${source.url}" } }`,
      "sites:",
      "  day:",
      "    retention: 3650d",
      "    logs: { backend: one, sources: { app: { index: lines-all, layout: ecs } } }",
      `    traces: { backend: one, index: "${otel.pattern("all")}", layout: otel }`,
    ]);
    await send(bench.agent, buildRestCall(bench, server, fewLines));
    const idle = readMemoryMegabytes(server.subject.pid, "VmRSS");
    await send(bench.agent, buildToolCall(bench, server, fewLines));
    const loaded = readMemoryMegabytes(server.subject.pid, "VmRSS");
    const figures: Figure[] = [{ name: "memory that the first call adds", unit: "MB", value: loaded - idle }];
    for (const question of questions) figures.push(await compare(bench, server, question));
    await server.subject.stop();
    return figures;
  } finally {
    await source.stop();
  }
}

/** Of one round. */
const requests = 20;
/** So that both run as in a process that has answered for a while. */
const warmRounds = 10;

/** @throws where the tool answers other rows than the route */
async function compare(bench: Bench, server: Server, question: Question): Promise<Figure> {
  const { agent, rounds } = bench;
  const call = buildToolCall(bench, server, question);
  const plain = buildRestCall(bench, server, question);
  verifyRows((await send(agent, call, true)).body, (await send(agent, plain, true)).body);
  const measureCpu = async (asked: Call): Promise<number> => {
    const before = readCpuMillis(server.subject.pid);
    for (let sent = 0; sent < requests; sent += 1) await send(agent, asked);
    return readCpuMillis(server.subject.pid) - before;
  };
  const ratios: number[] = [];
  for (let round = -warmRounds; round < rounds; round += 1) {
    // In turns, so that neither always pays for what the other has left.
    const isToolFirst = round % 2 === 0;
    const one = await measureCpu(isToolFirst ? call : plain);
    const two = await measureCpu(isToolFirst ? plain : call);
    if (round >= 0) ratios.push(isToolFirst ? one / two : two / one);
  }
  return { name: `${question.title}, a tool against REST: CPU`, unit: "×", ...summarise(ratios), floor };
}

function buildRestCall({ token }: Bench, { url }: Server, { route, body }: Question): Call {
  return { url: `${url}/api/v2/${route}`, method: "POST", body: JSON.stringify(body), token };
}

function buildToolCall({ token }: Bench, { url }: Server, { tool, arguments: args }: Question): Call {
  const params = { name: tool, arguments: args };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  return { url: `${url}/mcp`, method: "POST", body, token };
}

function verifyRows(own: string, plain: string): void {
  const { result }: { result: { structuredContent: { rows?: unknown[] } } } = JSON.parse(own);
  const { rows = [] } = result.structuredContent;
  const answer: unknown[] = JSON.parse(plain);
  if (rows.length === 0 || JSON.stringify(rows) !== JSON.stringify(answer))
    throw new Error(`a tool answers other rows than REST: ${own.slice(0, 300)}`);
}
