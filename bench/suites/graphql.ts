// `/graphql` against the REST route of the same lines, in turns on one server: what the schema, its execution and its
// hardening add. Measured last of a server's life, because a REST request goes through the GraphQL host once that is there.
import type { Agent } from "node:http";
import { type Call, send } from "../harness/http-client.ts";
import { readCpuMillis, readMemoryMegabytes, type Subject } from "../harness/process.ts";
import { calculateMedian, type Figure, summarise } from "../harness/report.ts";

interface Bench {
  readonly agent: Agent;
  readonly token: string;
  readonly rounds: number;
  readonly server: { readonly subject: Subject; readonly url: string };
  readonly rest: (lines: number) => Call;
  /** The range that all lines lie in. */
  readonly range: { readonly from: string; readonly to: string };
}

/** README, "What it promises": the most that a request may take of its REST route, and the memory with Mesh loaded. */
const floors = {
  ratio: new Map([
    [10, 1.85],
    [100, 1.85],
    [1_000, 1.6],
  ]),
  loadedMegabytes: 220,
};

export async function measureGraphql(bench: Bench): Promise<readonly Figure[]> {
  const { agent, rounds, rest, server } = bench;
  const figures: Figure[] = [];
  await send(agent, buildGraphqlCall(bench, 10));
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  figures.push({
    name: "serve: RSS with Mesh loaded",
    unit: "MB",
    value: readMemoryMegabytes(server.subject.pid, "VmRSS"),
    floor: floors.loadedMegabytes,
  });
  for (const [lines, floor] of floors.ratio) {
    const [own, plain] = [buildGraphqlCall(bench, lines), rest(lines)];
    await verify(agent, own, plain);
    const requests = Math.max(5, Math.min(50, Math.round(6_000 / lines)));
    for (let warm = 0; warm < requests * 4; warm++) for (const call of [own, plain]) await send(agent, call);
    const measured = { own: [] as Round[], plain: [] as Round[] };
    for (let round = 0; round < rounds; round++) {
      measured.own.push(await measure(bench, own, requests));
      measured.plain.push(await measure(bench, plain, requests));
    }
    for (const key of ["p50", "cpu"] as const) {
      const ratios = measured.own.map((round, at) => round[key] / (measured.plain[at]?.[key] ?? Number.NaN));
      figures.push({
        name: `${lines.toLocaleString("en")} lines, /graphql / REST: ${key === "cpu" ? "CPU" : key}`,
        unit: "×",
        ...summarise(ratios),
        floor,
      });
    }
  }
  return figures;
}

interface Round {
  readonly p50: number;
  readonly cpu: number;
}

async function measure({ agent, server }: Bench, call: Call, requests: number): Promise<Round> {
  const times: number[] = [];
  const before = readCpuMillis(server.subject.pid);
  for (let sent = 0; sent < requests; sent++) times.push((await send(agent, call)).millis);
  return { p50: calculateMedian(times), cpu: (readCpuMillis(server.subject.pid) - before) / requests };
}

/** All fields of the route, so that both answer the same. */
function buildGraphqlCall({ server, token, range }: Bench, lines: number): Call {
  const query = `query Lines($from: DateTime, $to: DateTime, $page: LogPaginationInput!) {
    logs_lines(site_id: "bench", source_ids: ["app"], query: "", use_expressions: true, from: $from, to: $to, pagination: $page) {
      id timestamp source_id severity message hostname group json attributes
    }
  }`;
  const page = { per_page: lines, order: "DESC", cursor: null };
  const body = JSON.stringify({ query, variables: { ...range, page } });
  return { url: `${server.url}/graphql`, method: "POST", body, token };
}

async function verify(agent: Agent, own: Call, plain: Call): Promise<void> {
  const [left, right] = await Promise.all(
    [own, plain].map(async (call) => (await send(agent, call, true)).body),
  );
  const answered: { data: { logs_lines: unknown } } = JSON.parse(left ?? "");
  if (JSON.stringify(answered.data.logs_lines) !== right)
    throw new Error("/graphql answers other lines than REST");
}
