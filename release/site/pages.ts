// The pages of the documentation site, in the order in which `docs/README.md` lists them.
import { readdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { readText, root } from "../program.ts";

export interface Page {
  /** Of the source, below the checkout: `docs/how-to/install.md`. */
  readonly source: string;
  /** Of the page, below the site: `how-to/install.html`. */
  readonly path: string;
  readonly title: string;
  /** The heading of its group in the list: `How-to guides`. */
  readonly group: string;
  /** What the list says of it; empty where it says nothing. */
  readonly summary: string;
  readonly markdown: string;
}

/** Documents beside `docs/`, which its pages lead to. */
const others = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"];
export const start = "docs/README.md";

/** Lists the pages: the start page, those of its tables, and after them those that no table names. */
export function listPages(): readonly Page[] {
  const listed = listEntries(readText(start));
  const found = readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".md"))
    .map((file) => join("docs", file))
    .toSorted();
  const known = new Map(listed.map((entry) => [entry.source, entry]));
  const ordered = [...new Set([start, ...known.keys(), ...found, ...others])];
  return ordered.map((source) => readPage(source, known.get(source)));
}

interface Entry {
  readonly source: string;
  readonly group: string;
  readonly summary: string;
}

/** The rows of the tables, each with the heading above its table. */
function listEntries(markdown: string): readonly Entry[] {
  let group = "";
  return markdown.split("\n").flatMap((line) => {
    group = /^## (.+)/.exec(line)?.[1] ?? group;
    const [, target, summary = ""] = /^\| \[[^\]]+\]\(([^)#]+\.md)\) \|(.*)\|$/.exec(line) ?? [];
    return target === undefined ? [] : [{ source: join("docs", target), group, summary: summary.trim() }];
  });
}

function readPage(source: string, entry: Entry | undefined): Page {
  const markdown = readText(source);
  const title = /^# (.+)$/m.exec(markdown)?.[1];
  if (title === undefined) throw new Error(`${source} has no title`);
  const { group = chooseGroup(source), summary = "" } = entry ?? {};
  return { source, path: toSitePath(source), title, group, summary, markdown };
}

function chooseGroup(source: string): string {
  if (source === start) return "";
  return source.startsWith("docs/adr/") ? "Decisions" : "Project";
}

/** The place of a page below the site. */
function toSitePath(source: string): string {
  if (source === start) return "index.html";
  const below = source.startsWith("docs/") ? relative("docs", source) : source.toLowerCase();
  return below.replace(/README\.md$/, "index.md").replace(/\.md$/, ".html");
}

/** The address of `to` as a page at `from` links it; both below the site. */
export function linkBetween(from: string, to: string): string {
  return relative(dirname(from), to);
}
