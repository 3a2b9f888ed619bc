// What `npm run bench` is asked for on its command line.
import { parseArgs } from "node:util";
import { serverNames } from "../../test/servers/servers.ts";

export const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    sizes: { type: "string" },
    subjects: { type: "string" },
    output: { type: "string" },
    spans: { type: "string" },
    days: { type: "string", default: "1" },
    server: { type: "string", default: "es8" },
    strict: { type: "boolean", default: false },
  },
});

const sectionNames = [
  "compare",
  "load",
  "metrics",
  "streams",
  "tracing",
  "scale",
  "graphql",
  "agents",
  "start",
  "sites",
  "merge",
  "parse",
  "intake",
  "isolation",
  "console",
  "release",
] as const;
/** `verified` is ours with a query whose matches have to be found in the documents, and that all lines match. */
const subjectNames = ["ours", "verified", "yardstick", "direct"] as const;
export type SubjectName = (typeof subjectNames)[number];
export type SectionName = (typeof sectionNames)[number];

function choose<T extends string>(text: string | undefined, known: readonly T[]): readonly T[] {
  if (text === undefined) return known;
  return text.split(",").map((name) => {
    const found = known.find((one) => one === name);
    if (found === undefined) throw new Error(`no ${name}; there are ${known.join(", ")}`);
    return found;
  });
}
export const [scaleServer = "es8"] = choose(options.server, serverNames);
export const sections = choose(options.only, sectionNames);
export const chosen = choose(options.subjects, subjectNames);
export const sizes = options.sizes?.split(",").map(Number) ?? [10, 100, 1_000, 10_000];
export const rounds = options.quick ? 5 : 25;
