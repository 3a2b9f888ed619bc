// The documentation site: its pages, links, Markdown twins and search. `test/backends/release/site.test.ts` looks at it in a browser.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { Script } from "node:vm";
import MiniSearch, { type AsPlainObject, type Options } from "minisearch";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildSite } from "../../release/site/site.ts";
import { listAnchors, readPage } from "../support/docs/pages.ts";

let folder: string;
let site: string;
let version: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "readout-site-"));
  for (const older of ["0.0.9", "0.0.10-rc.2", "0.0.10-rc.10", "0.0.10"]) {
    mkdirSync(join(folder, older));
    writeFileSync(join(folder, older, "llms.txt"), "");
  }
  version = buildSite(folder);
  site = join(folder, version);
});
afterAll(() => rmSync(folder, { recursive: true }));

const read = (path: string) => readFileSync(join(site, path), "utf8");
const listFiles = (ending: string): readonly string[] =>
  readdirSync(site, { recursive: true, encoding: "utf8" }).filter(
    (file) => file.endsWith(ending) && !file.startsWith("files/"),
  );

/** What a script of the site sets. */
function evaluate(path: string): Record<string, unknown> {
  const context: Record<string, unknown> = {};
  new Script(`(globalThis) => {${readFileSync(path, "utf8")}}`).runInThisContext()(context);
  return context;
}

describe("the pages", () => {
  test("are those of docs/, each with its Markdown beside it", () => {
    const sources = readdirSync("docs", { recursive: true, encoding: "utf8" }).filter((file) =>
      file.endsWith(".md"),
    );
    const expected = sources.map((file) => file.replace(/README\.md$/, "index.md"));
    expect(listFiles(".md")).toEqual(expect.arrayContaining(expected));
    expect(listFiles(".html").toSorted()).toEqual(
      listFiles(".md")
        .map((file) => file.replace(/\.md$/, ".html"))
        .toSorted(),
    );
    expect(read("how-to/install.md")).toBe(readFileSync("docs/how-to/install.md", "utf8"));
  });

  test("have no link that leads nowhere", () => {
    const anchors = new Map(
      listFiles(".html").map((file) => [
        file,
        new Set([...read(file).matchAll(/ id="([^"]*)"/g)].map(([, id]) => id)),
      ]),
    );
    const links = listFiles(".html").flatMap((file) =>
      [...read(file).matchAll(/ (?:href|src)="([^"]*)"/g)].map(([, href = ""]) => ({ file, href })),
    );
    const isDead = ({ file, href }: { readonly file: string; readonly href: string }) => {
      if (/^[a-z]+:/.test(href)) return false;
      const [path = "", anchor] = href.split("#");
      const target = path === "" ? file : normalize(join(dirname(file), path));
      if (!existsSync(join(site, target))) return true;
      return anchor !== undefined && anchors.get(target)?.has(anchor) !== true;
    };
    expect(links.length).toBeGreaterThan(3_000);
    expect(links.filter(isDead)).toEqual([]);
  });

  test("have Markdown whose links lead to Markdown and files that are there", () => {
    const pages = listFiles(".md").map((file) => ({ ...readPage(join(site, file)), file }));
    const anchors = new Map(pages.map((page) => [page.file, listAnchors(page)]));
    const links = pages.flatMap(({ file, prose }) =>
      [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, href = ""]) => ({ file, href })),
    );
    const isDead = ({ file, href }: { readonly file: string; readonly href: string }) => {
      if (/^[a-z]+:/.test(href)) return false;
      const [path = "", anchor] = href.split("#");
      const target = path === "" ? file : normalize(join(dirname(file), path));
      if (!existsSync(join(site, target)) || target.endsWith(".html")) return true;
      return anchor !== undefined && anchors.get(target)?.includes(anchor) !== true;
    };
    expect(links.length).toBeGreaterThan(300);
    expect(links.filter(isDead)).toEqual([]);
  });

  test("have no header of a table without words", () => {
    expect(listFiles(".html").filter((file) => read(file).includes("<th></th>"))).toEqual([]);
  });

  test("are listed for language models with what they are about", () => {
    const listed = [...read("llms.txt").matchAll(/^- \[.+\]\((.+)\)/gm)].map(([, path = ""]) => path);
    expect([...listed, "index.md"].toSorted()).toEqual(listFiles(".md").toSorted());
    expect(read("llms.txt")).toContain("- [Install](how-to/install.md): systemd, containers, proxies");
  });
});

describe("the search", () => {
  test.each([
    ["counter_default", "reference/configuration.html#sites"],
    ["field-level security", "how-to/secure-clusters.html"],
    ["sigterm", "how-to/operate.html"],
    ["retenton", "reference/configuration.html#sites"],
  ])("finds %s", (words, expected) => {
    const { searchIndex } = evaluate(join(site, "assets/search-index.js")) as {
      readonly searchIndex: { readonly options: Options; readonly index: AsPlainObject };
    };
    const results = MiniSearch.loadJS(searchIndex.index, searchIndex.options).search(words).slice(0, 8);
    expect(
      results.map(({ id }) => String(id)).some((id) => id.startsWith(expected)),
      JSON.stringify(results.map(({ id }) => id)),
    ).toBe(true);
  });
});

test("the folder lists its versions, newest first, and leads to the newest", () => {
  expect(evaluate(join(folder, "versions.js"))).toEqual({
    siteVersions: [version, "0.0.10", "0.0.10-rc.10", "0.0.10-rc.2", "0.0.9"],
  });
  expect(readFileSync(join(folder, "index.html"), "utf8")).toContain(`url=${version}/index.html`);
});
