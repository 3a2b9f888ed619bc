// The exactness law on new corpora and queries until the time is over:
//   npm run test:exact -- --minutes 60 [--servers es8,os2] [--seed 7]
// Servers and layouts take turns. A difference is shrunk and printed as a script for test/log-query/cases. The run goes on
// and exits with 1. ADDRESSES=es8=http://… uses servers that already run, as for test:backends.
import { parseArgs } from "node:util";
import fc from "fast-check";
import type { LogLine } from "#src/core/rows.ts";
import { downloadServer, type ServerName, serverNames, servers, start } from "../servers/servers.ts";
import { type Cluster, openCluster } from "../support/elastic/test-index.ts";
import {
  canReproduce,
  type Difference,
  findDifference,
  isConsistent,
  listSubjects,
  printScript,
  query,
  read,
  type Subject,
  spellings,
  type Target,
} from "./law.ts";

const usage = "usage: npm run test:exact -- --minutes N [--servers es8,os2] [--seed N]";
const each = 150;
/** Shrinking loads the documents again in each step. */
const shrinking = 180_000;

interface Arena {
  readonly target: Target & { readonly name: ServerName };
  readonly cluster: Cluster;
}

async function main(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: { minutes: { type: "string" }, servers: { type: "string" }, seed: { type: "string" } },
  });
  const minutes = Number(values.minutes);
  const addresses = new Map(
    process.env.ADDRESSES?.split(",").map((pair) => pair.split("=", 2) as [string, string]),
  );
  const requested = values.servers?.split(",") ?? (addresses.size > 0 ? [...addresses.keys()] : serverNames);
  const names = serverNames.filter((name) => requested.includes(name));
  const seed = Number(values.seed ?? Date.now() % 2 ** 31);
  if (!(minutes > 0) || names.length !== requested.length || !Number.isSafeInteger(seed)) {
    console.error(`${usage}\nservers: ${serverNames.join(" ")}`);
    return 2;
  }
  const stops: (() => Promise<void>)[] = [];
  try {
    const arenas: Arena[] = [];
    for (const name of names) {
      let url = addresses.get(name);
      if (url === undefined) {
        await downloadServer(name);
        const running = await start(name);
        stops.push(() => running.stop());
        url = running.url;
      }
      const { product, version } = servers[name];
      const cluster = openCluster(url);
      stops.unshift(() => cluster.close());
      arenas.push({ target: { name, product, version }, cluster });
    }
    return await searchDifferences(arenas, seed, performance.now() + minutes * 60_000);
  } finally {
    for (const stop of stops) await stop();
  }
}

async function searchDifferences(arenas: readonly Arena[], first: number, end: number): Promise<number> {
  const counts = new Map<string, number>();
  let differences = 0;
  let seed = first;
  const interrupted = new AbortController();
  process.once("SIGINT", () => interrupted.abort());
  const isOver = (): boolean => interrupted.signal.aborted || performance.now() >= end;
  while (!isOver()) {
    for (const { target, cluster } of arenas) {
      for (const subject of listSubjects(target)) {
        if (isOver()) break;
        const label = `${target.name} ${subject.name}`;
        const { queries, script } = await runRound(cluster, subject, seed);
        counts.set(label, (counts.get(label) ?? 0) + queries);
        if (script === undefined) continue;
        differences += 1;
        console.log(`# ${label}, --seed ${seed}\n${script}\n`);
      }
    }
    seed += 1;
  }
  for (const { cluster } of arenas) await cluster.remove("search-*");
  for (const [label, queries] of counts) console.log(`${label.padEnd(20)} ${queries} queries`);
  const all = [...counts.values()].reduce((sum, queries) => sum + queries, 0);
  console.log(`${all} queries from seed ${first} on, ${differences} differences`);
  return differences === 0 ? 0 : 1;
}

/**
 * A response differs from the expected lines. Anything else that is thrown, such as a refused query, is reported by its
 * message.
 */
class Unlike extends Error {
  override readonly name = "Unlike";
}

/** The smallest corpus and query so far that violate the law. */
interface Finding {
  readonly query: string;
  readonly lines: readonly LogLine[];
  /** The lines whose response is wrong even alone; empty where all lines matter. */
  readonly wrong: readonly LogLine[];
  readonly notes: readonly string[];
}

/** Runs many queries over one corpus. Where one differs, returns the smallest documents and query that do. */
async function runRound(
  cluster: Cluster,
  { name, layout, shipper, shrinking: documents }: Subject,
  seed: number,
): Promise<{ readonly queries: number; readonly script: string | undefined }> {
  let queries = 0;
  let loads = 0;
  let isShrinking = false;
  let smallest: Finding | undefined;
  const law = fc.asyncProperty(
    documents,
    fc.array(query, { minLength: 1, maxLength: each, size: "max" }),
    async (load, texts) => {
      // New names: the store may remember a mapping by the old ones.
      const prefix = `search-${name}-${seed}-${loads++}`;
      let everything: readonly LogLine[] = [];
      let asked = "";
      try {
        const written = await load(cluster, prefix);
        everything = await read(cluster, layout, prefix, "");
        if (everything.length !== written) {
          const notes = [`a scan finds ${everything.length} of ${written} documents`];
          smallest = { query: "", lines: everything, wrong: [], notes };
          throw new Unlike();
        }
        for (const text of texts) {
          asked = text;
          const found = await findDifference(cluster, layout, prefix, everything, text);
          if (!isShrinking) queries += 1;
          if (found === undefined) continue;
          const wrong = [...found.missing, ...found.extra];
          smallest = { query: text, lines: everything, wrong, notes: listNotes(found) };
          throw new Unlike();
        }
      } catch (error) {
        isShrinking = true;
        if (!(error instanceof Unlike)) {
          const notes = [error instanceof Error ? error.message : String(error)];
          smallest = { query: asked, lines: everything, wrong: [], notes };
        }
        throw error;
      } finally {
        await cluster.remove(`${prefix}-*`);
      }
    },
  );
  await fc.check(law, { seed, numRuns: 1, interruptAfterTimeLimit: shrinking });
  if (smallest === undefined) return { queries, script: undefined };
  const script = await printDifference(cluster, layout, shipper, smallest, `search-${name}-${seed}-script`);
  return { queries, script };
}

function listNotes({ missing, extra, isOrdered }: Difference): readonly string[] {
  const printLine = ({ id, message, json }: LogLine): string => `${id} ${JSON.stringify(message)} ${json}`;
  return [
    ...missing.map((line) => `missing: ${printLine(line)}`),
    ...extra.map((line) => `extra: ${printLine(line)}`),
    ...(isOrdered ? [] : ["the lines are right, and their order is not"]),
  ];
}

/** The wrong lines, if a script of these alone reproduces the difference; otherwise all lines. */
async function printDifference(
  cluster: Cluster,
  layout: string,
  shipper: Subject["shipper"],
  { query, lines, wrong, notes }: Finding,
  prefix: string,
): Promise<string> {
  const comments = notes.map((note) => `# ${note.replaceAll("\n", " ")}`);
  const tries = [wrong.slice(0, 1), wrong, lines].filter((some) => some.length > 0);
  const scripts = tries.flatMap((some) => spellings.map((spell) => printScript(layout, some, query, spell)));
  for (const [at, script] of [...new Set(scripts)].entries()) {
    if (!isConsistent(script)) continue;
    if (await canReproduce(cluster, shipper, script, `${prefix}-${at}`))
      return [...comments, script].join("\n");
  }
  const reason =
    "A script does not show this: it needs the indices that were searched, or names of the layout itself (test/exactness/law.ts).";
  return [...comments, `# ${reason}`, printScript(layout, wrong.length > 0 ? wrong : lines, query)].join(
    "\n",
  );
}

process.exitCode = await main(process.argv.slice(2));
