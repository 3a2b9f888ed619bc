// Markdown to the HTML of a page's main part. Headings get the anchors that GitHub gives them, since the links between pages
// name those. A link to a page becomes one to its HTML; one to another file of the checkout, to a copy of that file.
import { existsSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { Marked, type Tokens } from "marked";
import { root } from "../program.ts";
import { createAnchors } from "./anchors.ts";
import { linkBetween, type Page, start } from "./pages.ts";

export interface Heading {
  readonly id: string;
  /** As plain text. */
  readonly text: string;
  /** 2 or 3. */
  readonly level: number;
}

export interface RenderedPage {
  readonly html: string;
  /** Of the second and third level, for the list beside the page. */
  readonly headings: readonly Heading[];
  /** Files of the checkout that it links, beside the pages. */
  readonly files: readonly string[];
  /** Its sections as plain text, for the search. */
  readonly sections: readonly Section[];
}

export interface Section {
  /** The anchor of its heading; empty before the first one. */
  readonly id: string;
  readonly heading: string;
  readonly text: string;
}

/** @throws {Error} where a link leads to no file of the checkout */
export function renderPage(page: Page, pages: ReadonlyMap<string, Page>): RenderedPage {
  const files = new Set<string>();
  const headings: Heading[] = [];
  const sections: { id: string; heading: string; text: string }[] = [{ id: "", heading: "", text: "" }];
  const makeAnchor = createAnchors();
  const marked = new Marked({ gfm: true });
  marked.use({
    walkTokens: (token) => {
      if (token.type !== "link" && token.type !== "image") return;
      token.href = rewriteLink(token.href, page, pages, (file) => files.add(file));
    },
    renderer: {
      heading({ tokens, depth }: Tokens.Heading) {
        const html = this.parser.parseInline(tokens);
        const text = toPlainText(html);
        const id = makeAnchor(text);
        if (depth > 1) {
          if (depth < 4) headings.push({ id, text, level: depth });
          sections.push({ id, heading: text, text: "" });
        }
        const anchor =
          depth === 1 ? "" : ` <a class="anchor" href="#${id}" aria-label="Link to ${text}">#</a>`;
        return `<h${depth} id="${id}">${html}${anchor}</h${depth}>\n`;
      },
      table(token: Tokens.Table) {
        const print = (cell: Tokens.TableCell, tag: string) =>
          `<${tag}>${this.parser.parseInline(cell.tokens)}</${tag}>`;
        // A header without words, such as that of the column of row names, is none.
        const row = (cells: readonly Tokens.TableCell[], tag: string) =>
          `<tr>${cells.map((cell) => print(cell, cell.text === "" ? "td" : tag)).join("")}</tr>`;
        const body = token.rows.map((cells) => row(cells, "td")).join("\n");
        // Wide tables scroll by themselves, also with the keyboard.
        return `<div class="table" tabindex="0"><table><thead>${row(token.header, "th")}</thead><tbody>${body}</tbody></table></div>\n`;
      },
      code({ text, lang = "" }: Tokens.Code) {
        const [language = "text"] = lang.split(" ");
        return `<pre tabindex="0"><code class="language-${escapeHtml(language)}">${escapeHtml(text)}</code></pre>\n`;
      },
    },
  });
  const html = marked.parse(page.markdown, { async: false });
  collectText(html, sections);
  return { html, headings, files: [...files], sections };
}

/** The Markdown of a page with the links of the site: to the Markdown of pages, and to copies of other files. */
export function rewriteMarkdown(page: Page, pages: ReadonlyMap<string, Page>): string {
  const twins = new Map([...pages].map(([source, other]) => [source, toTwin(other)]));
  const rewrite = (text: string) =>
    text.replaceAll(/(?<=\]\()[^)\s]+(?=\))/g, (href) => rewriteLink(href, toTwin(page), twins));
  // What stands in fences is shown as it is.
  const parts = page.markdown.split(/(^ *```[\s\S]*?^ *```$)/m);
  return parts.map((part, at) => (at % 2 === 0 ? rewrite(part) : part)).join("");
}

const toTwin = (page: Page): Page => ({ ...page, path: page.path.replace(/\.html$/, ".md") });

/** `addFile` is told of each file of the checkout that is no page. */
function rewriteLink(
  href: string,
  page: Page,
  pages: ReadonlyMap<string, Page>,
  addFile: (path: string) => void = () => {},
): string {
  if (/^[a-z]+:|^#/.test(href)) return href;
  const [path = "", anchor] = href.split("#");
  const target = normalize(join(dirname(page.source), decodeURI(path))).replace(/\/$/, "");
  const suffix = anchor === undefined ? "" : `#${anchor}`;
  // The README of the checkout and the start page are one to a reader.
  const source = target === "README.md" || target === "." ? start : target;
  const linked = pages.get(source) ?? pages.get(`${source}/README.md`);
  if (linked !== undefined) return linkBetween(page.path, linked.path) + suffix;
  if (!existsSync(join(root, target))) throw new Error(`${page.source}: ${href} leads nowhere`);
  addFile(target);
  return linkBetween(page.path, join("files", target));
}

/** Shares the text of the page out to its sections, in the order of their headings. */
function collectText(html: string, sections: { text: string }[]): void {
  const parts = html.split(/<h[2-6] id="[^"]*">.*<\/h[2-6]>/);
  for (const [at, part] of parts.entries()) {
    const section = sections[at];
    if (section === undefined) throw new Error("more parts than headings");
    section.text = toPlainText(part);
  }
}

function toPlainText(html: string): string {
  return html
    .replaceAll(/<[^>]+>/g, " ")
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&")
    .replaceAll(/\s+/g, " ")
    .trim();
}

export function escapeHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
