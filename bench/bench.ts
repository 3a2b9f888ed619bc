// `npm run bench`: what Readout costs beside a hand-written adapter and beside the source itself. Machines differ
// and drift, so what is compared is measured in turns, round after round, and what lasts are the ratios within a
// round. The server under test has core 1 to itself; the clients and the source share core 0.
//
//   --quick              few rounds, to see that it runs; results.json is left alone
//   --only a,b           of: compare, load, metrics, graphql, tracing, scale, streams, start, sites, merge, parse,
//                        intake, isolation, console, release; in results.json the others stay as they are
//   --sizes 100,1000     lines per request in `compare`; results.json is left alone
//   --subjects a,b       of: ours, verified, yardstick, direct; results.json is left alone
//   --output FILE        where the figures go, also after a partial run
//   --spans N            of a day of `scale`: a million, or 100,000 with --quick. Where it is given, the filled server is kept
//                        in /var/tmp and taken up again; so is a run that was cut
//   --days N             of `scale`, each with so many spans: 1
//   --server NAME        of `scale`: es8, or another search server
//   --strict             exit code 1 when a floor is missed
import { loadavg } from "node:os";
import { chosen, options, rounds, type SectionName, scaleServer, sections } from "./harness/options.ts";
import { holdTo } from "./harness/process.ts";
import type { Figure } from "./harness/report.ts";
import { type MeasuredSections, printResults, writeResults } from "./harness/results.ts";
import {
  agent,
  buildLinesCall,
  buildStallPreload,
  folder,
  readStall,
  type Source,
  serve,
  startOurs,
  startSource,
  token,
} from "./harness/servers.ts";
import { measureAgents } from "./suites/agents.ts";
import { compareLines, compareUnicodeLines } from "./suites/compare.ts";
import { measureConsole } from "./suites/console.ts";
import { measureGraphql } from "./suites/graphql.ts";
import { measureGroupedMetrics } from "./suites/grouped-metrics.ts";
import { measureIntake } from "./suites/intake.ts";
import { measureIsolation } from "./suites/isolation.ts";
import { measureBesideOthers, measureLoad } from "./suites/load.ts";
import { measureManySites } from "./suites/many-sites.ts";
import { measureMerge } from "./suites/merge.ts";
import { measureMetrics } from "./suites/metrics.ts";
import { measureParsing } from "./suites/parsing.ts";
import { measureRelease } from "./suites/release.ts";
import { measureScale } from "./suites/scale.ts";
import { measureStart } from "./suites/start.ts";
import { measureStreams } from "./suites/streams.ts";
import { measureTracing } from "./suites/tracing.ts";

interface Sources {
  readonly ascii: Source;
  readonly unicode: Source;
}

const { quick } = options;

const measureSection: Readonly<Record<SectionName, (sources: Sources) => Promise<readonly Figure[]>>> = {
  compare: async ({ ascii, unicode }) => [
    ...(await compareLines(ascii)),
    ...(await compareUnicodeLines(unicode)),
  ],
  load: async ({ unicode }) => {
    const figures: Figure[] = [];
    for (const name of ["ours", "yardstick"] as const) {
      if (chosen.includes(name)) figures.push(...(await measureLoad(unicode, name)));
    }
    if (chosen.includes("ours")) figures.push(...(await measureBesideOthers(unicode)));
    return figures;
  },
  metrics: async () => {
    const serveMetrics = (yaml: readonly string[], stalls?: string) =>
      serve(yaml, stalls === undefined ? {} : buildStallPreload(stalls));
    return [
      ...(await measureMetrics({ agent, token, rounds, folder, serve: serveMetrics, readStall })),
      ...(await measureGroupedMetrics({ agent, token, rounds, serve })),
    ];
  },
  streams: () => measureStreams({ agent, token, quick, serve }),
  tracing: () => measureTracing({ agent, token, rounds, quick, folder, serve }),
  scale: () => {
    const spans = Number(options.spans ?? (quick ? 100_000 : 1_000_000));
    return measureScale({
      agent,
      token,
      folder,
      spans,
      days: Number(options.days),
      isKept: options.spans !== undefined,
      server: scaleServer,
      serve: (yaml, limits) => serve(yaml, {}, limits),
    });
  },
  graphql: async ({ ascii }) => {
    const server = await startOurs(ascii);
    const rest = (lines: number) => buildLinesCall(server.url, ascii, lines);
    const range = { from: ascii.from, to: ascii.to };
    const figures = await measureGraphql({ agent, token, rounds, server, rest, range });
    await server.subject.stop();
    return figures;
  },
  agents: () => measureAgents({ agent, token, rounds, serve }),
  start: ({ ascii }) => measureStart(ascii),
  sites: () => measureManySites(quick ? 2 : 7, folder),
  merge: () => measureMerge({ agent, token, rounds, serve: (yaml, limits) => serve(yaml, {}, limits) }),
  parse: async () => measureParsing(),
  intake: ({ ascii }) => measureIntake(quick, folder, ascii),
  isolation: () => measureIsolation(quick, folder),
  console: () => measureConsole(quick ? 2 : 7),
  release: () => measureRelease(quick ? 2 : 7, folder),
};

/** The figures of the sections that were asked for. Only two of them have subjects other than Readout. */
async function measureSections(sources: Sources): Promise<MeasuredSections> {
  const measured = new Map<SectionName, readonly Figure[]>();
  for (const name of sections) {
    if (chosen.includes("ours") || name === "compare" || name === "load") {
      measured.set(name, await measureSection[name](sources));
    }
  }
  return measured;
}

holdTo(0);
const begin = performance.now();
const loadBefore = loadavg()[0] ?? 0;
const sources = { ascii: await startSource("ascii"), unicode: await startSource("unicode") };
const measured = await measureSections(sources);
for (const { subject } of Object.values(sources)) await subject.stop();
agent.destroy();
const run = { loadBefore, seconds: (performance.now() - begin) / 1_000 };
printResults(measured, run);
writeResults(measured, run);
