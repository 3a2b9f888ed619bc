// A request at a time, in turns: Readout, the yardstick and the source itself, and the ratios between them.

import type { Call } from "../harness/http-client.ts";
import { send } from "../harness/http-client.ts";
import { chosen, options, rounds, type SubjectName, sizes } from "../harness/options.ts";
import { readCpuMillis } from "../harness/process.ts";
import { calculateMedian, count, type Figure, summarise } from "../harness/report.ts";
import {
  agent,
  buildDirectCall,
  buildLinesCall,
  type Server,
  type Source,
  startOurs,
  startYardstick,
} from "../harness/servers.ts";

const verifiedQuery = "message:ms http.response.status_code>=200";
/** The most that each ratio may be, by lines (README, "What it promises"). */
const floors = new Map([
  [100, 1.15],
  [1_000, 1.15],
  [10_000, 1.25],
]);

/** A fast wrong answer is no answer: both servers must send the same rows. */
async function verifyRows(
  source: Source,
  servers: ReadonlyMap<SubjectName, Server>,
  lines: number,
): Promise<void> {
  const [ours, yardstick] = [servers.get("ours"), servers.get("yardstick")];
  if (ours === undefined || yardstick === undefined) return;
  const [left, right] = (await Promise.all(
    [ours, yardstick].map(async ({ url }) =>
      JSON.parse((await send(agent, buildLinesCall(url, source, lines), true)).body),
    ),
  )) as [readonly Readonly<Record<string, unknown>>[], readonly Readonly<Record<string, unknown>>[]];
  if (left.length !== lines || right.length !== lines) {
    throw new Error(`asked for ${lines} lines: ours sent ${left.length}, the yardstick ${right.length}`);
  }
  left.forEach((row, at) => {
    const expected = right[at] ?? {};
    for (const field of new Set([...Object.keys(row), ...Object.keys(expected)])) {
      const [got, want] = [JSON.stringify(row[field]), JSON.stringify(expected[field])];
      // Ours puts the index before `_id`, which alone is not unique in a source of many indices.
      if (field === "id" && String(row.id).endsWith(String(expected.id))) continue;
      if (got !== want) throw new Error(`line ${at}, ${field}: ours sent ${got}, the yardstick ${want}`);
    }
  });
}

interface Round {
  readonly p50: number;
  readonly cpu: number;
}

async function measure(call: Call, pid: number, requests: number): Promise<Round> {
  const times: number[] = [];
  const before = readCpuMillis(pid);
  for (let sent = 0; sent < requests; sent++) times.push((await send(agent, call)).millis);
  return { p50: calculateMedian(times), cpu: (readCpuMillis(pid) - before) / requests };
}

type Rounds = ReadonlyMap<SubjectName, readonly Round[]>;

/** All chosen subjects in turns, for each number of lines. */
async function measureInTurns(
  source: Source,
  sizes: readonly number[],
): Promise<ReadonlyMap<number, Rounds>> {
  const servers = new Map<SubjectName, Server>();
  const ours = chosen.includes("ours") || chosen.includes("verified") ? await startOurs(source) : undefined;
  if (ours !== undefined) servers.set("ours", ours).set("verified", ours);
  if (chosen.includes("yardstick")) servers.set("yardstick", await startYardstick(source));
  const measured = new Map<number, Rounds>();
  for (const lines of sizes) {
    await verifyRows(source, servers, lines);
    const calls = chosen.map((name) => {
      const server = servers.get(name);
      const query = name === "verified" ? verifiedQuery : "";
      return {
        name,
        call:
          server === undefined
            ? buildDirectCall(source, lines)
            : buildLinesCall(server.url, source, lines, query),
        pid: server?.subject.pid ?? source.subject.pid,
        rounds: [] as Round[],
      };
    });
    const requests = Math.max(5, Math.min(100, Math.round(12_000 / lines)));
    for (const { call } of calls) {
      const warm = performance.now() + (options.quick ? 300 : 1_500);
      do await send(agent, call);
      while (performance.now() < warm);
    }
    for (let round = 0; round < rounds; round++) {
      // Each goes first in turn, so that no one always follows the one that fills the caches.
      const turn = round % calls.length;
      for (const one of [...calls.slice(turn), ...calls.slice(0, turn)]) {
        one.rounds.push(await measure(one.call, one.pid, requests));
      }
    }
    measured.set(lines, new Map(calls.map(({ name, rounds }) => [name, rounds])));
    process.stderr.write(`compare: ${count(lines)} lines of ${source.text} done\n`);
  }
  for (const { subject } of new Set(servers.values())) await subject.stop();
  return measured;
}

const pairs = [
  ["ours", "yardstick"],
  ["verified", "yardstick"],
  ["ours", "direct"],
  ["yardstick", "direct"],
] as const;

function calculateRatios(title: string, byName: Rounds, floor: number | undefined): readonly Figure[] {
  return pairs.flatMap(([left, right]) => {
    const [own, other] = [byName.get(left), byName.get(right)];
    if (own === undefined || other === undefined) return [];
    // The source's own CPU says nothing about a server.
    const keys = right === "direct" ? (["p50"] as const) : (["p50", "cpu"] as const);
    return keys.map((key) => ({
      name: `${title}, ${left} / ${right}: ${key === "cpu" ? "CPU" : key}`,
      unit: "×",
      ...summarise(own.map((round, at) => round[key] / (other[at]?.[key] ?? Number.NaN))),
      floor: left === "ours" && right === "yardstick" ? floor : undefined,
    }));
  });
}

export async function compareLines(source: Source): Promise<readonly Figure[]> {
  const measured = await measureInTurns(source, sizes);
  const figures: Figure[] = [];
  for (const [lines, byName] of measured) {
    const title = `${count(lines)} lines`;
    for (const [name, own] of byName) {
      const cpu = summarise(own.map((round) => round.cpu));
      figures.push(
        { name: `${title}, ${name}: p50`, unit: "ms", ...summarise(own.map(({ p50 }) => p50)) },
        { name: `${title}, ${name}: CPU a request`, unit: "ms", ...cpu },
      );
    }
    figures.push(...calculateRatios(title, byName, floors.get(lines)));
  }
  // What one more line costs: flat when the cost grows with the lines, rising when it grows faster.
  for (const name of chosen.filter((one) => one !== "direct")) {
    sizes.slice(1).forEach((lines, at) => {
      const fewer = sizes[at] ?? 0;
      const [more, less] = [lines, fewer].map((size) => {
        return calculateMedian((measured.get(size)?.get(name) ?? []).map(({ cpu }) => cpu));
      });
      figures.push({
        name: `${count(fewer)} → ${count(lines)} lines, ${name}: CPU a further line`,
        unit: "µs",
        value: (((more ?? 0) - (less ?? 0)) / (lines - fewer)) * 1_000,
      });
    });
  }
  return figures;
}

/** The ratios alone, over lines that are not all ASCII. */
export async function compareUnicodeLines(source: Source): Promise<readonly Figure[]> {
  const measured = await measureInTurns(source, [1_000]);
  return [...measured].flatMap(([lines, byName]) =>
    calculateRatios(`${count(lines)} lines beyond ASCII`, byName, undefined),
  );
}
