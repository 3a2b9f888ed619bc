// How many files a reader opens to follow one request downward: those in which a function ran for it, by V8's coverage.
// `core`, `telemetry` and `access` are left out: every request passes them. The architecture page lists the files.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openSources, type Program, questions, type Sources, startProgram } from "../faults/harness.ts";

const root = new URL("../..", import.meta.url);
const page = readFileSync(new URL("docs/explanation/architecture.md", root), "utf8");

let sources: Sources;
let program: Program;
beforeAll(async () => {
  sources = await openSources();
  program = await startProgram(sources, "Elasticsearch");
});
afterAll(async () => {
  await program.close();
  await sources.close();
});

/** Paths below the root, of the files with a function that ran while the request was answered, sorted. */
async function listFilesRun(name: string): Promise<readonly string[]> {
  const question = questions.find((question) => question.name === name);
  if (question === undefined) throw new Error(`no question ${name}`);
  // The first one reads mappings and finds out what the server is; the second one is what a dashboard asks all day.
  await program.ask(question);
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  let files: string[] | undefined;
  // What runs each time runs for the question. A timer of the program runs at some time.
  for (let time = 1; time <= 3; time += 1) {
    const run = await listFilesCovered(session, question);
    files = files?.filter((file) => run.has(file)) ?? [...run];
  }
  session.disconnect();
  return (files ?? []).sort();
}

async function listFilesCovered(
  session: Session,
  question: (typeof questions)[number],
): Promise<Set<string>> {
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  const { status } = await program.ask(question);
  const { result } = await session.post("Profiler.takePreciseCoverage");
  await session.post("Profiler.stopPreciseCoverage");
  expect(status).toBe(200);
  const files = result
    .filter(({ functions }) =>
      functions.some(({ functionName, ranges }) => functionName !== "" && (ranges[0]?.count ?? 0) > 0),
    )
    .flatMap(({ url }) => (url.startsWith(root.href) ? [url.slice(root.href.length)] : []))
    .filter((file) => /^(src|resolvers)\//.test(file) && !/^src\/(core|telemetry|access)\//.test(file))
    // Tails that other tests of this worker have left open go on polling; neither question is one.
    .filter((file) => !file.startsWith("src/tail/"));
  return new Set(files);
}

test("the architecture page names each folder once, with a file to open first", () => {
  const rows = [...page.matchAll(/^\| `((?:src|resolvers)[^`]*)` \| `([^`]+)` \|/gm)];
  const folders = ["src", "resolvers"].flatMap((top) => [
    top,
    ...readdirSync(new URL(top, root), { recursive: true, withFileTypes: true })
      .filter((entry) => /(?<!\.d)\.(ts|js)$/.test(entry.name))
      .map((entry) => entry.parentPath.slice(fileURLToPath(root).length)),
  ]);
  expect(rows.map(([, folder]) => folder).sort()).toEqual([...new Set(folders)].sort());
  for (const [, folder, file] of rows)
    expect(existsSync(new URL(`${folder}/${file}`, root)), `${folder}/${file}`).toBe(true);
});

describe("the files that one request passes", () => {
  test.each([
    ["log lines", "logs/lines", 41],
    ["a metrics series", "metrics/timeseries", 35],
  ])(
    "for %s are those that the architecture page lists, and no more than before",
    async (title, name, most) => {
      const files = await listFilesRun(name);
      expect(files.length, files.join("\n")).toBeLessThanOrEqual(most);
      const [, listed = ""] = new RegExp(`\`\`\`text ${title}\n([^\`]*)\`\`\``).exec(page) ?? [];
      expect(listed.trim().split("\n")).toEqual(files);
    },
  );
});
