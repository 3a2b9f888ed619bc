// What a run of the benchmark leaves: the table that it prints, and the figures in results.json.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { options, rounds, type SectionName } from "./options.ts";
import { pinned } from "./process.ts";
import { type Figure, isFloorMet, printTable } from "./report.ts";

export type MeasuredSections = ReadonlyMap<SectionName, readonly Figure[]>;

interface Run {
  /** Whoever else works on the machine is in the figures too, and more so in the latencies than in the CPU times. */
  readonly loadBefore: number;
  readonly seconds: number;
}

const machine = {
  cpus: cpus().length,
  model: cpus()[0]?.model ?? "unknown",
  memory_megabytes: Math.round(totalmem() / 1e6),
  kernel: release(),
  node: process.version,
  pinned,
};

export function printResults(measured: MeasuredSections, { loadBefore, seconds }: Run): void {
  console.log(
    `${machine.model}, ${machine.cpus} CPUs, Linux ${machine.kernel}, Node ${machine.node}, ` +
      `${pinned ? "server on a core of its own" : "NOT pinned"}, ${rounds} rounds, ${seconds.toFixed(0)} s\n`,
  );
  if (loadBefore > 0.5)
    console.log(`The machine was busy before this began: load ${loadBefore.toFixed(2)}\n`);
  const figures = [...measured.values()].flat();
  console.log(printTable(figures));
  const missed = figures.filter((figure) => !isFloorMet(figure));
  if (missed.length > 0)
    console.log(`\n${missed.length} of ${figures.filter(({ floor }) => floor).length} floors missed`);
  if (options.strict && missed.length > 0) process.exitCode = 1;
}

/** Writes the sections that were measured; results.json keeps the others. A run of less than all writes no results.json. */
export function writeResults(measured: MeasuredSections, { loadBefore }: Run): void {
  const partial = options.quick || options.sizes !== undefined || options.subjects !== undefined;
  const output = options.output ?? (partial ? undefined : join(import.meta.dirname, "..", "results.json"));
  if (output === undefined) return;
  const took = { date: new Date().toISOString(), load_before: Number(loadBefore.toFixed(2)), rounds };
  const before: { sections?: object } =
    options.output === undefined && existsSync(output) ? JSON.parse(readFileSync(output, "utf8")) : {};
  const own = [...measured].map(([name, figures]) => {
    const told = figures.map((figure) =>
      figure.floor === undefined ? figure : { ...figure, met: isFloorMet(figure) },
    );
    return [name, { ...took, figures: told }] as const;
  });
  const results = { machine, sections: { ...before.sections, ...Object.fromEntries(own) } };
  writeFileSync(output, `${JSON.stringify(results, null, 2)}\n`);
}
