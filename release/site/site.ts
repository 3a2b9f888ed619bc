// `npm run site`: the documentation as a site of plain files, in `dist/site/VERSION/`, beside the versions that lie there
// already. It can be opened from a disk: no page asks a server for anything, and the search runs in the browser.
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import MiniSearch, { type Options } from "minisearch";
import { compareVersions } from "../compare-versions.ts";
import { readText, root, writeText } from "../program.ts";
import { layOutPage } from "./layout.ts";
import { listPages, type Page } from "./pages.ts";
import { type RenderedPage, renderPage, rewriteMarkdown } from "./render.ts";

/** Writes the site of this checkout into `folder/VERSION`, and the list of versions into `folder`. Returns that version. */
export function buildSite(folder: string): string {
  const { version } = JSON.parse(readText("package.json")) as { readonly version: string };
  const target = join(folder, version);
  rmSync(target, { recursive: true, force: true });
  const pages = listPages();
  const bySource = new Map(pages.map((page) => [page.source, page]));
  const rendered = pages.map((page) => [page, renderPage(page, bySource)] as const);
  for (const [page, content] of rendered) {
    writeText(target, page.path, layOutPage(page, content, { version, pages }));
    writeText(target, page.path.replace(/\.html$/, ".md"), rewriteMarkdown(page, bySource));
    for (const file of content.files) copyFile(file, join(target, "files", file));
  }
  for (const file of readdirSync(theme)) copyFile(join(themePath, file), join(target, "assets", file));
  copyFile("node_modules/minisearch/dist/umd/index.js", join(target, "assets/minisearch.js"));
  writeText(target, "assets/search-index.js", buildSearchIndex(rendered));
  writeText(target, "llms.txt", printLlms(version, pages));
  writeVersions(folder, version);
  return version;
}

const themePath = "release/site/theme";
const theme = join(root, themePath);

/** A folder is copied with all that is in it. */
function copyFile(source: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  cpSync(join(root, source), target, { recursive: true });
}

/** What the search knows of a section, and how it compares. */
const searchOptions: Options = {
  fields: ["title", "heading", "text"],
  storeFields: ["title", "heading"],
  searchOptions: { boost: { title: 4, heading: 3 }, prefix: true, fuzzy: 0.15, combineWith: "AND" },
};

/** A script that sets the index. It has a document for each section, so that a result leads to its heading. */
function buildSearchIndex(rendered: readonly (readonly [Page, RenderedPage])[]): string {
  const index = new MiniSearch(searchOptions);
  for (const [{ path, title }, { sections }] of rendered)
    for (const { id, heading, text } of sections)
      index.add({ id: id === "" ? path : `${path}#${id}`, title, heading, text });
  // Scripts are loaded from a disk too, where browsers fetch no data.
  return `globalThis.searchIndex = ${JSON.stringify({ options: searchOptions, index: index.toJSON() })};\n`;
}

/** The list of pages for language models (llmstxt.org): each page's Markdown, with what it is about. */
function printLlms(version: string, pages: readonly Page[]): string {
  const { description } = JSON.parse(readText("package.json")) as { readonly description: string };
  const groups = [...Map.groupBy(pages, ({ group }) => group)].filter(([group]) => group !== "");
  const print = ({ path, title, summary }: Page) =>
    `- [${title}](${path.replace(/\.html$/, ".md")})${summary === "" ? "" : `: ${summary}`}\n`;
  const lists = groups.map(([group, members]) => `## ${group}\n\n${members.map(print).join("")}`);
  return `# Readout ${version}\n\n> ${description}\n\n${lists.join("\n")}`;
}

/** The versions that lie in the folder, newest first, as a script, and a page that leads to the newest. */
function writeVersions(folder: string, version: string): void {
  const versions = readdirSync(folder)
    .filter((name) => existsSync(join(folder, name, "llms.txt")))
    .toSorted(compareVersions)
    .toReversed();
  writeText(folder, "versions.js", `globalThis.siteVersions = ${JSON.stringify(versions)};\n`);
  const newest = versions.at(0) ?? version;
  writeText(
    folder,
    "index.html",
    `<!doctype html><html lang="en"><meta charset="utf-8"><title>Readout</title><meta http-equiv="refresh" content="0; url=${newest}/index.html"><p><a href="${newest}/index.html">Readout ${newest}</a></p></html>\n`,
  );
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const folder = join(root, "dist/site");
  mkdirSync(folder, { recursive: true });
  process.stdout.write(`dist/site/${buildSite(folder)}/index.html\n`);
}
