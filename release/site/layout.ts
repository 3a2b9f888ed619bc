// The frame of each page: the list of pages, the headings beside the text, the search, the versions.
import { linkBetween, type Page } from "./pages.ts";
import { escapeHtml, type Heading, type RenderedPage } from "./render.ts";

export interface SiteFacts {
  readonly version: string;
  readonly pages: readonly Page[];
}

/** A whole HTML document. */
export function layOutPage(page: Page, rendered: RenderedPage, { version, pages }: SiteFacts): string {
  const link = (to: string) => escapeHtml(linkBetween(page.path, to));
  const title = page.path === "index.html" ? "Readout" : `${page.title} · Readout`;
  const description =
    page.summary.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll("`", "") ||
    `${page.title}: documentation of Readout`;
  return `<!doctype html>
<html lang="en" data-root="${link("index.html").replace(/index\.html$/, "") || "./"}" data-version="${version}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="${escapeHtml(description)}">
<title>${escapeHtml(title)}</title>
<link rel="stylesheet" href="${link("assets/style.css")}">
<link rel="alternate" type="text/markdown" href="${link(page.path.replace(/\.html$/, ".md"))}">
<script defer src="${link("assets/site.js")}"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<header>
<a class="name" href="${link("index.html")}">Readout</a>
<label class="search">Search <input type="search" id="search" autocomplete="off" role="combobox" aria-expanded="false" aria-controls="found" aria-autocomplete="list"></label>
<label class="versions">Version <select id="version"><option>${version}</option></select></label>
<ul id="found" role="listbox" aria-label="Pages found" hidden></ul>
</header>
<div class="columns">
<nav class="pages" aria-label="Pages"><details id="menu"><summary>All pages</summary>
${printGroups(page, pages)}</details></nav>
<main id="main">
${rendered.html}${printNeighbours(page, pages)}</main>
${printContents(rendered.headings)}</div>
</body>
</html>
`;
}

function printGroups(page: Page, pages: readonly Page[]): string {
  const groups = Map.groupBy(pages, ({ group }) => group);
  return [...groups]
    .map(([group, members]) => {
      const items = members.map((member) => printItem(page, member)).join("");
      return `${group === "" ? "" : `<h2>${escapeHtml(group)}</h2>\n`}<ul>\n${items}</ul>\n`;
    })
    .join("");
}

function printItem(page: Page, member: Page): string {
  const current = member === page ? ' aria-current="page"' : "";
  const title = member.path === "index.html" ? "Overview" : member.title;
  return `<li><a href="${escapeHtml(linkBetween(page.path, member.path))}"${current}>${escapeHtml(title)}</a></li>\n`;
}

/** The headings of the page. A page with one or none needs no list. */
function printContents(headings: readonly Heading[]): string {
  if (headings.length < 2) return "";
  const items = headings.map(
    ({ id, text, level }) => `<li class="level-${level}"><a href="#${id}">${escapeHtml(text)}</a></li>\n`,
  );
  return `<nav class="contents" aria-label="On this page"><h2>On this page</h2><ul>\n${items.join("")}</ul></nav>\n`;
}

function printNeighbours(page: Page, pages: readonly Page[]): string {
  const at = pages.indexOf(page);
  const print = (other: Page | undefined, words: string, rel: string) =>
    other === undefined || other.group !== page.group
      ? ""
      : `<a rel="${rel}" href="${escapeHtml(linkBetween(page.path, other.path))}">${words}: ${escapeHtml(other.title)}</a>`;
  const links = print(pages[at - 1], "Previous", "prev") + print(pages[at + 1], "Next", "next");
  return links === "" ? "" : `<nav class="neighbours" aria-label="Neighbours">${links}</nav>\n`;
}
