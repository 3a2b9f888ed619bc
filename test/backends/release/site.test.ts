// The documentation site in a browser, opened from a disk: accessible in light and dark, and readable on a small screen.
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { AxeResults, RunOptions } from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildSite } from "../../../release/site/site.ts";

const axeScript = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
// Looking at all takes minutes. What tables of a page may lack is looked for in each by `test/release/site.test.ts`.
const paths = [
  "index.html",
  "tutorials/getting-started.html",
  "reference/configuration.html",
  "reference/api/tracing.html",
  "explanation/architecture.html",
  "how-to/use-the-console.html",
  "adr/index.html",
  "changelog.html",
];

let folder: string;
let site: string;
let browser: Browser;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "readout-site-"));
  site = pathToFileURL(join(folder, buildSite(folder))).href;
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
});
afterAll(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const looks = [
  ["light", { viewport: { width: 1_400, height: 900 } }],
  ["dark", { viewport: { width: 1_400, height: 900 }, colorScheme: "dark" }],
  ["small", { viewport: { width: 390, height: 800 } }],
] as const;

async function findFaults(page: Page): Promise<readonly string[]> {
  await page.addScriptTag({ path: axeScript });
  const results = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      readonly axe: { run(options: RunOptions): Promise<AxeResults> };
    };
    return axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] });
  });
  return results.violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
}

describe.each(looks)("%s", (_, options) => {
  test("each page is accessible, and no wider than the screen", async () => {
    const page = await browser.newPage(options);
    const wrong: string[] = [];
    page.on("pageerror", (error) => wrong.push(String(error)));
    for (const path of paths) {
      await page.goto(`${site}/${path}`);
      for (const fault of await findFaults(page)) wrong.push(`${path}: ${fault}`);
      const width = await page.evaluate("document.documentElement.scrollWidth");
      if (width !== options.viewport.width) wrong.push(`${path}: ${width} px wide`);
    }
    await page.close();
    expect(wrong).toEqual([]);
  });
});

test("the search finds a section, and the keyboard leads to it", async () => {
  const page = await browser.newPage();
  await page.goto(`${site}/how-to/install.html`);
  await page.keyboard.press("/");
  // The last letter is put before the one that is there.
  await page.keyboard.type("counter_defaut");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.type("l");
  expect(await page.inputValue("input")).toBe("counter_default");
  await page.waitForSelector("#found [data-href]");
  expect(await findFaults(page)).toEqual([]);
  const listSelected = () =>
    page.$$eval("#found [data-href]", (items) =>
      items.map((item) => item.getAttribute("aria-selected") === "true"),
    );
  // Without a selection it is the last one.
  await page.keyboard.press("ArrowUp");
  expect((await listSelected()).indexOf(true)).toBe((await listSelected()).length - 1);
  await page.keyboard.press("ArrowDown");
  expect((await listSelected()).indexOf(true)).toBe(0);
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.hash !== "");
  const { hash } = new URL(page.url());
  expect(await page.textContent(`${hash} ~ *`)).toContain("counter_default");
  await page.close();
});
