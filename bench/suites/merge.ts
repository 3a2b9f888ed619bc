// What a site over two clusters costs beside the same rows in one, in the same rounds: lines, and traces. Both clusters are one real
// server with indices of their own, so that what differs is the merge. Documents are split at random.
import type { Agent } from "node:http";
import { start as startServer } from "../../test/servers/servers.ts";
import { otel } from "../../test/support/elastic/span-shippers/otel.ts";
import { fillSplitDay, range } from "../fixtures/split-day.ts";
import { type Call, send } from "../harness/http-client.ts";
import { readCpuMillis, type Subject } from "../harness/process.ts";
import { type Figure, summarise } from "../harness/report.ts";

interface Bench {
  readonly agent: Agent;
  readonly token: string;
  readonly rounds: number;
  readonly serve: (
    yaml: readonly string[],
    limits: Readonly<Record<string, number>>,
  ) => Promise<{ subject: Subject; url: string }>;
}

/** The CPU time of two clusters over that of one, at most. */
const mergeRatio = 1.15;

const askLines = (per_page: number): Question => ({
  title: `${per_page.toLocaleString("en")} lines`,
  route: "logs/lines",
  body: { source_ids: ["app"], query: "", pagination: { per_page, order: "DESC", cursor: { time: null } } },
});
const questions: readonly Question[] = [
  askLines(1_000),
  askLines(10_000),
  {
    title: "a page of 100 traces",
    route: "tracing/traces/performance",
    body: { pagination: { per_page: 100, order: "DESC", cursor: "Time" } },
  },
  { title: "edges of a site", route: "tracing/site_edges", body: {} },
  { title: "slow events", route: "tracing/slow_events", body: {} },
];

/** Whose figures are kept in memory after the first answer. */
const keptQuestions: readonly Question[] = [
  { title: "edges of a site, asked again", route: "tracing/site_edges", body: {} },
  { title: "slow events, asked again", route: "tracing/slow_events", body: {} },
];

interface Question {
  readonly title: string;
  readonly route: string;
  readonly body: object;
}

export async function measureMerge(bench: Bench): Promise<readonly Figure[]> {
  const source = await startServer("es8");
  try {
    await fillSplitDay(source.url);
    const backend = `{ kind: elastic, url: "${source.url}" }`;
    const spans = (prefix: string) => `index: "${otel.pattern(prefix)}", layout: otel`;
    const configuration = [
      `backends: { one: ${backend}, left: ${backend}, right: ${backend} }`,
      "sites:",
      "  whole:",
      "    retention: 3650d",
      "    logs: { backend: one, sources: { app: { index: lines-all, layout: ecs } } }",
      `    traces: { backend: one, ${spans("all")} }`,
      "  split:",
      "    retention: 3650d",
      "    logs:",
      "      sources:",
      "        app:",
      "          backends:",
      "            - { backend: left, index: lines-a, layout: ecs }",
      "            - { backend: right, index: lines-b, layout: ecs }",
      `    traces: [{ backend: left, ${spans("a")} }, { backend: right, ${spans("b")} }]`,
    ];
    // Figures that are kept in memory would hide what reading costs, so these are asked apart.
    const read = await askAll(bench, configuration, { rollup_bytes: 0 }, questions);
    return [...read, ...(await askAll(bench, configuration, {}, keptQuestions))];
  } finally {
    await source.stop();
  }
}

async function askAll(
  bench: Bench,
  configuration: readonly string[],
  limits: Readonly<Record<string, number>>,
  asked: readonly Question[],
): Promise<readonly Figure[]> {
  const { subject, url } = await bench.serve(configuration, limits);
  const figures: Figure[] = [];
  for (const question of asked) figures.push(await compare(bench, { subject, url }, question));
  await subject.stop();
  return figures;
}

/** So that both ways run as in a process that has answered for a while. */
const warmRounds = 20;

interface Asked {
  readonly cpu: number;
  /** How many quotation marks the answer has. */
  readonly texts: number;
}

/** @throws where one answer has more texts than the other */
async function compare(
  { agent, token, rounds }: Bench,
  { subject, url }: { readonly subject: Subject; readonly url: string },
  { title, route, body }: Question,
): Promise<Figure> {
  const ask = async (site: string): Promise<Asked> => {
    const of = route.startsWith("tracing/traces") ? { site_ids: [site] } : { site_id: site };
    const call: Call = {
      url: `${url}/api/v2/${route}`,
      method: "POST",
      token,
      body: JSON.stringify({ ...of, ...range, ...body }),
    };
    const before = readCpuMillis(subject.pid);
    const answer = await send(agent, call, true);
    return { cpu: readCpuMillis(subject.pid) - before, texts: answer.body.split('"').length };
  };
  const ratios: number[] = [];
  for (let round = -warmRounds; round < rounds; round += 1) {
    // In turns, so that neither profits from what the other has warmed.
    const isWholeFirst = round % 2 === 0;
    const first = await ask(isWholeFirst ? "whole" : "split");
    const second = await ask(isWholeFirst ? "split" : "whole");
    const [one, two] = isWholeFirst ? [first, second] : [second, first];
    if (one.texts !== two.texts) throw new Error(`${title}: ${one.texts} and ${two.texts}`);
    if (round >= 0) ratios.push(two.cpu / one.cpu);
  }
  return {
    name: `two clusters against one, ${title}: CPU`,
    unit: "×",
    ...summarise(ratios),
    floor: mergeRatio,
  };
}
