// The pages that users read, and what stands in them: fenced blocks, headings, links.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { createAnchors } from "../../../release/site/anchors.ts";

/** A fenced block. Its info string is a language, and after it the kind by which a test knows what to do with it. */
export interface Block {
  readonly page: string;
  readonly line: number;
  /** `sh`, `yaml readout`, `text output`. */
  readonly kind: string;
  readonly text: string;
}

export interface Page {
  /** Relative to the root of the checkout. */
  readonly path: string;
  readonly text: string;
  readonly lines: readonly string[];
  readonly blocks: readonly Block[];
  /** The text without its fenced blocks. */
  readonly prose: string;
}

const listMarkdown = (folder: string): readonly string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name));

/** README.md and docs/, without what is for those who change the program. */
export function readUserPages(): readonly Page[] {
  const forContributors = (path: string) => path.startsWith("docs/adr/") || path.endsWith("architecture.md");
  return ["README.md", ...listMarkdown("docs").toSorted()]
    .filter((path) => !forContributors(path))
    .map(readPage);
}

/** Every other guide of the checkout: its links are checked as well. */
export function readContributorPages(): readonly Page[] {
  const paths = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", ...listMarkdown("docs/adr")];
  return [
    ...paths,
    "docs/explanation/architecture.md",
    ...["src", "resolvers", "test"].map((at) => `${at}/README.md`),
  ]
    .filter((path) => existsSync(path))
    .map(readPage);
}

export function readPage(path: string): Page {
  const text = readFileSync(path, "utf8");
  const lines = text.replace(/\n$/, "").split("\n");
  const blocks: Block[] = [];
  const prose: string[] = [];
  let open: { kind: string; line: number; indent: number; lines: string[] } | undefined;
  for (const [at, line] of lines.entries()) {
    const fence = /^( *)```(.*)$/.exec(line);
    if (open === undefined && fence !== null) {
      open = { kind: fence[2]?.trim() ?? "", line: at + 1, indent: fence[1]?.length ?? 0, lines: [] };
    } else if (open !== undefined && fence !== null) {
      blocks.push({ page: path, line: open.line, kind: open.kind, text: `${open.lines.join("\n")}\n` });
      open = undefined;
    } else if (open !== undefined) open.lines.push(line.slice(open.indent));
    else prose.push(line);
  }
  if (open !== undefined) throw new Error(`${path}:${open.line}: the block has no end`);
  return { path, text, lines, blocks, prose: prose.join("\n") };
}

/** The anchors that GitHub makes of a page's headings. */
export function listAnchors(page: Page): readonly string[] {
  const makeAnchor = createAnchors();
  return [...page.prose.matchAll(/^#{1,6} (.+)$/gm)].map(([, title = ""]) => makeAnchor(title));
}

/** What is wrong with the relative links of a page: files that do not exist, anchors that no heading has. */
export function findBrokenLinks(page: Page): readonly string[] {
  const targets = [...page.prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target);
  return targets.flatMap((target) => {
    if (/^[a-z]+:/.test(target)) return [];
    const [file = "", anchor] = target.split("#");
    const path = file === "" ? page.path : normalize(join(dirname(page.path), file));
    if (!existsSync(path)) return [`${page.path}: ${target}: no such file`];
    if (anchor === undefined || !path.endsWith(".md")) return [];
    return listAnchors(readPage(path)).includes(anchor) ? [] : [`${page.path}: ${target}: no such heading`];
  });
}

/** The rows of the tables below a heading, cell by cell, without the head and the rule. */
export function readTable(page: Page, heading: string): readonly (readonly string[])[] {
  const lines = page.prose.split("\n");
  const start = lines.findIndex((line) => /^#+ /.test(line) && line.replace(/^#+ /, "") === heading);
  if (start < 0) throw new Error(`${page.path} has no heading "${heading}"`);
  const rest = lines.slice(start + 1);
  const end = rest.findIndex((line) => /^#+ /.test(line));
  const section = end < 0 ? rest : rest.slice(0, end);
  return section.flatMap((line, at) => {
    const isHead = /^\|[\s:|-]+\|$/.test(section[at + 1] ?? "");
    if (!line.startsWith("|") || isHead || /^\|[\s:|-]+\|$/.test(line)) return [];
    return [
      line
        .slice(1, -1)
        .split(/(?<!\\)\|/)
        .map((cell) => cell.trim()),
    ];
  });
}

/** The texts between backticks. */
export const listCode = (cell: string): readonly string[] =>
  [...cell.matchAll(/`([^`]+)`/g)].map(([, code = ""]) => code);
