// The console's first views over the demo's data, in Chromium whose page runs half as fast as this machine, and a quarter as fast, as
// page audits do it for a phone: how soon the first rows stand there, and how many bytes came for them. Each round has a browser's
// context of its own, so that nothing is cached. A browser is several processes: they have all cores, and share them with the server.
import { type Browser, type CDPSession, chromium } from "playwright-core";
import { endAll, startReadout } from "../../test/support/process.ts";
import { holdTo } from "../harness/process.ts";
import { type Figure, summarise } from "../harness/report.ts";

/** How much slower the page runs, and the most that a first view may take then, in milliseconds. */
const speeds = [{ slowdown: 2, floor: 1_000 }, { slowdown: 4 }] as const;
/** What stands there once a view has what it shows. */
const views = [
  { name: "logs", shown: ".line-item" },
  { name: "traces", shown: "main tbody tr" },
  { name: "metrics", shown: "main .names li" },
  { name: "actions", shown: "main tbody tr" },
] as const;
const token = "a-token-for-the-bench";

export async function measureConsole(rounds: number): Promise<readonly Figure[]> {
  holdTo(undefined);
  const { listening } = startReadout("demo", "--port", "0", "--token", token);
  const origin = await listening;
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
  try {
    const figures: Figure[] = [];
    for (const { name, shown } of views) {
      const bytes: number[] = [];
      for (const { slowdown, ...floor } of speeds) {
        const measured: FirstView[] = [];
        for (let round = 0; round < rounds; round++)
          measured.push(await openFirstView(browser, `${origin}/#/${name}`, shown, slowdown));
        // A slower page has asked for more by the time that its first rows stand there.
        if (slowdown === 2) bytes.push(...measured.map((view) => view.bytes));
        figures.push({
          name: `${name}: first rows, slowed down ${slowdown} ×`,
          unit: "ms",
          ...floor,
          ...summarise(measured.map(({ millis }) => millis)),
        });
      }
      figures.push({
        name: `${name}: bytes of the first view`,
        unit: "kB",
        ...summarise(bytes.map((count) => count / 1_000)),
      });
    }
    return figures;
  } finally {
    await browser.close();
    endAll();
    holdTo(0);
  }
}

interface FirstView {
  /** From the begin of the navigation. */
  readonly millis: number;
  /** As they came over the wire, with headers. */
  readonly bytes: number;
}

async function openFirstView(
  browser: Browser,
  address: string,
  shown: string,
  slowdown: number,
): Promise<FirstView> {
  const context = await browser.newContext({ viewport: { width: 1_000, height: 800 } });
  try {
    const page = await context.newPage();
    await page.addInitScript((text) => sessionStorage.setItem("readout.token", text), token);
    const client = await context.newCDPSession(page);
    const count = await countBytes(client);
    await client.send("Emulation.setCPUThrottlingRate", { rate: slowdown });
    await page.goto(address, { waitUntil: "commit" });
    const found = await page.waitForFunction(
      (selector) => document.querySelector(selector) !== null && performance.now(),
      shown,
      { polling: "raf" },
    );
    return { millis: Number(await found.jsonValue()), bytes: count() };
  } finally {
    await context.close();
  }
}

async function countBytes(client: CDPSession): Promise<() => number> {
  let bytes = 0;
  client.on("Network.loadingFinished", ({ encodedDataLength }) => {
    bytes += encodedDataLength;
  });
  await client.send("Network.enable");
  return () => bytes;
}
