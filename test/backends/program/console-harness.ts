// The console in a real browser, for the tests of it. What serves it runs as the program does.
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { startReadout } from "../../support/process.ts";

export const token = "a-token-that-must-not-leak";
export let origin: string;
let browser: Browser;
let context: BrowserContext | undefined;
export let page: Page;
/** What the browser complains of: scripts that fail, files that are missing, breaches of the policy. */
export let complaints: string[];

/** What serves the console: its address, and how it ends. */
export interface Served {
  readonly address: string;
  readonly stop: () => Promise<unknown>;
}

/** Starts the program; its arguments name what it serves. */
export async function startProgram(args: readonly string[]): Promise<Served> {
  const { listening, child, ended } = startReadout(...args);
  const stop = async () => {
    child.kill();
    await ended;
  };
  return { address: await listening, stop };
}

/** Starts the demo or something else, and a browser, and gives each test of the file or the group a page of its own. */
export function prepareConsole(
  serve: () => Promise<Served> = () => startProgram(["demo", "--port", "0", "--token", token]),
): void {
  let served: Served | undefined;
  beforeAll(async () => {
    served = await serve();
    origin = served.address;
    browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox"],
    });
  }, 180_000);
  afterAll(async () => {
    await browser?.close();
    await served?.stop();
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
  // Only against what never comes: the machine may be shared.
  watched.setDefaultTimeout(60_000);
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

/** Scrolls to the end until something is there. Once is not enough: what is drawn meanwhile may move the end out of sight. */
export async function scrollUntil(isThere: () => Promise<boolean>): Promise<void> {
  const scrollUnlessThere = async (): Promise<boolean> => {
    if (await isThere()) return true;
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    return false;
  };
  await expect.poll(scrollUnlessThere).toBe(true);
}

/** Which log lines are open, counted from the first one that is shown. */
export async function readOpenLines(): Promise<readonly number[]> {
  const heads = page.locator(".lines .line");
  return await heads.evaluateAll((all) =>
    all.flatMap((one, at) => (one.getAttribute("aria-expanded") === "true" ? [at] : [])),
  );
}

/** A row in sight, and a check that it is where it is now, to the pixel that each scroll is rounded to, of two. */
export async function rememberPlace(): Promise<() => Promise<void>> {
  const readTops = () =>
    page.evaluate(() =>
      [...document.querySelectorAll("main [data-key]")].map(
        (row) => [row.getAttribute("data-key"), row.getBoundingClientRect().top] as const,
      ),
    );
  const [key, top] = (await readTops()).find((row) => row[1] >= 0) ?? [null, 0];
  const measure = async () => Math.abs(((await readTops()).find((row) => row[0] === key)?.[1] ?? 1e9) - top);
  return () => expect.poll(measure).toBeLessThan(2);
}

interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  /** Microseconds on the processor. */
  readonly tdur?: number;
  readonly args: { readonly name?: string };
}

/**
 * The longest task of the page's thread while something is done, in milliseconds on the processor: what other programs take
 * from it meanwhile is not the page's.
 */
export async function measureLongestTask(act: () => Promise<void>): Promise<number> {
  const client = await page.context().newCDPSession(page);
  const events: TraceEvent[] = [];
  client.on("Tracing.dataCollected", ({ value }) => events.push(...(value as unknown as TraceEvent[])));
  const traceConfig = { includedCategories: ["toplevel"], excludedCategories: ["*"] };
  await client.send("Tracing.start", { traceConfig });
  await act();
  const collected = new Promise((resolve) => client.once("Tracing.tracingComplete", resolve));
  await client.send("Tracing.end");
  await collected;
  await client.detach();
  const threads = events.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain");
  const tasks = events.filter(
    ({ name, pid, tid }) =>
      name === "ThreadControllerImpl::RunTask" &&
      threads.some((thread) => thread.pid === pid && thread.tid === tid),
  );
  if (tasks.length === 0) throw new Error("the browser tells of no task");
  return Math.max(...tasks.map(({ tdur = 0 }) => tdur)) / 1_000;
}
export const queryBox = () => page.getByRole("textbox", { name: "Query" });
export const state = () => new URLSearchParams(new URL(page.url()).hash.split("?")[1]);

/** A line of a second, as the API answers it. */
export const createLine = (second: number) => ({
  id: `i/${second}`,
  timestamp: `2026-01-31T12:00:0${second}.000Z`,
  source_id: "app",
  severity: "info",
  message: `line ${second}`,
  hostname: "",
  group: "",
  json: "{}",
  attributes: {},
});
