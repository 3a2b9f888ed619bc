// The console in a real browser, on the demo, for the tests of it. The demo runs as the program does.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach } from "vitest";
import { program } from "../../support/process.ts";

export const token = "a-token-that-must-not-leak";
let demo: ChildProcess;
export let origin: string;
let browser: Browser;
let context: BrowserContext | undefined;
export let page: Page;
/** What the browser complains of: scripts that fail, files that are missing, breaches of the policy. */
export let complaints: string[];

/** Starts the demo and a browser, and gives each test a page of its own. */
export function prepareConsole(): void {
  beforeAll(async () => {
    demo = spawn(process.execPath, [...program, "demo", "--port", "0", "--token", token], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let out = "";
    while (!/^Console\s+(http:\S+)$/m.test(out)) out += String(await once(demo.stdout ?? demo, "data"));
    origin = (/^Console\s+(http:\S+)$/m.exec(out)?.[1] ?? "").replace(/\/$/, "");
    browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox"],
    });
  }, 60_000);
  afterAll(async () => {
    await browser?.close();
    demo?.kill();
  });

  beforeEach(async () => {
    await openContext({ viewport: { width: 1_000, height: 800 } });
    await context?.grantPermissions(["clipboard-read", "clipboard-write"], { origin });
  });
  afterEach(async () => {
    await context?.close();
    context = undefined;
  });
}

/** Gives the test another page, of a context with these options. */
export async function openContext(options: BrowserContextOptions): Promise<void> {
  await context?.close();
  context = await browser.newContext(options);
  page = await watch(await context.newPage());
}

async function watch(watched: Page): Promise<Page> {
  complaints = [];
  watched.setDefaultTimeout(30_000);
  watched.on("pageerror", (error) => complaints.push(error.message));
  watched.on("console", (message) => {
    // A refused request is the browser's error too, and what the page makes of it is tested here.
    if (message.type() === "error" && !/status of 4(01|22)/.test(message.text()))
      complaints.push(message.text());
  });
  return watched;
}

/** Opens a view as someone who has signed in before. */
export async function open(address = "#/logs", known = token): Promise<void> {
  await page.addInitScript((text) => sessionStorage.setItem("readout.token", text), known);
  await page.goto(`${origin}/${address}`);
}

export async function ask(path: string, body: object): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const headers = { authorization: `Bearer ${token}` };
  const init = { method: "POST", headers, body: JSON.stringify(body) };
  return await (await fetch(`${origin}/api/v2/${path}`, init)).json();
}
export const queryBox = () => page.getByRole("textbox", { name: "Query" });
export const state = () => new URLSearchParams(new URL(page.url()).hash.split("?")[1]);
