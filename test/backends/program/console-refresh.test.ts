// Reading a view of the console anew, on the demo: what a reader has done in it stays.
import { describe, expect, test } from "vitest";
import {
  complaints,
  createLine,
  open,
  page,
  prepareConsole,
  queryBox,
  readOpenLines,
  state,
} from "./console-harness.ts";

prepareConsole();

/** A range that is over, so that nothing is added to it. */
const range = {
  from: new Date(Date.now() - 3_600_000).toISOString(),
  to: new Date(Date.now() - 60_000).toISOString(),
};
const address = (view: string, more: Readonly<Record<string, string>> = {}) =>
  `#/${view}?${new URLSearchParams({ ...more, range: `${range.from}/${range.to}` })}`;
const unread = () => page.locator(".unread").textContent();

/** Presses the key; the view that is shown is another one then. */
async function refresh(): Promise<void> {
  const old = await page.locator("main > div:not(.staged)").elementHandle();
  await page.keyboard.press("r");
  await expect.poll(() => old?.evaluate((one) => one.isConnected)).toBe(false);
}

/** Presses the key, and acts before the answer is there; the view that is shown stays. */
async function actDuringRefresh(path: string, act: () => Promise<void>): Promise<void> {
  const held = Promise.withResolvers<void>();
  const asked = page.waitForRequest(`**/${path}`);
  await page.route(`**/${path}`, async (route) => {
    await held.promise;
    await route.continue();
  });
  await page.keyboard.press("r");
  await asked;
  const old = await page.locator("main > div:not(.staged)").elementHandle();
  await act();
  held.resolve();
  await expect.poll(() => page.locator("main > div").count()).toBe(1);
  expect(await old?.evaluate((one) => one.isConnected)).toBe(true);
}

describe("a view that is read anew", () => {
  test("has the rows and the fields open that were open, and the focus where it was", async () => {
    await open(address("logs"));
    const lines = page.locator(".line-item");
    await lines.nth(5).waitFor();
    for (const at of [1, 3]) await lines.nth(at).locator(".line").first().click();
    await page.locator(".fields summary", { hasText: /^hostname$/ }).click();
    await page.locator(".field-value").first().waitFor();
    await lines.nth(4).locator(".line").first().focus();
    await refresh();
    expect(await readOpenLines()).toEqual([1, 3]);
    await page.locator(".field-value").first().waitFor();
    expect(
      await lines.evaluateAll((all) => all.findIndex((one) => one.contains(document.activeElement))),
    ).toBe(4);
    expect(complaints).toEqual([]);
  });

  test("has what is folded inside of a line folded", async () => {
    const lines = [2, 1].map((at) => ({ ...createLine(at), json: JSON.stringify({ outer: { inner: 1 } }) }));
    await page.route("**/api/v2/logs/lines", (route) => {
      const isFirstPage = route.request().postDataJSON().pagination.cursor.time === null;
      return route.fulfill({ json: isFirstPage ? lines : [] });
    });
    await open(address("logs"));
    // The last one that is opened is in the address.
    for (const at of [0, 1]) await page.locator(".line-item > .line").nth(at).click();
    const fold = page.locator(".tree summary", { hasText: "outer" }).first();
    await fold.click();
    const isOpen = () => fold.evaluate((one) => one.parentElement?.hasAttribute("open"));
    expect(await isOpen()).toBe(false);
    await page.locator("#main").focus();
    await refresh();
    expect(await readOpenLines()).toEqual([0, 1]);
    await expect.poll(isOpen).toBe(false);
  });

  test("has a line open that was open in the list and among the lines around another", async () => {
    await open(address("logs"));
    const item = page.locator(".lines > ol > .line-item");
    await item.nth(3).locator(".line").first().click();
    await page.getByRole("button", { name: "Lines around it" }).click();
    await page.locator(".context > li").nth(5).waitFor();
    const key = await page.locator(".context > li:not([aria-current])").nth(0).getAttribute("data-key");
    const both = page.locator(`[data-key="${key}"] > .line`);
    expect(await both.count()).toBe(2);
    for (const at of [0, 1]) await both.nth(at).click();
    await page.locator("#main").focus();
    await refresh();
    expect(await both.count()).toBe(1);
    expect(await both.getAttribute("aria-expanded")).toBe("true");
    expect(await item.nth(3).locator(".line").getAttribute("aria-expanded")).toBe("true");
  });

  test("has the series hidden that were hidden, and the pods open", async () => {
    await open(address("metrics", { name: "cpu", tags: "hostname=*" }));
    const hidden = page.locator("button.series").nth(1);
    await hidden.click();
    const name = await hidden.textContent();
    await page.locator("#main").focus();
    await refresh();
    expect(await page.locator("button.series[aria-pressed='false']").allTextContents()).toEqual([name]);
    await page.goto(`${page.url().split("#")[0]}${address("kubernetes")}`);
    const names = page.locator(".expander");
    for (const at of [0, 2]) await names.nth(at).click();
    await page.locator("#main").focus();
    await refresh();
    await expect.poll(() => names.nth(2).getAttribute("aria-expanded")).toBe("true");
    expect(await page.locator(".expander[aria-expanded='true']").count()).toBe(2);
  });
});

test("a view whose answer does not come is read anew by another key", async () => {
  await open(address("logs"));
  await page.locator(".line-item").nth(5).waitFor();
  await page.locator("#main").focus();
  await page.route("**/logs/lines", () => {});
  const asked = page.waitForRequest("**/logs/lines");
  await page.keyboard.press("r");
  await asked;
  await page.unroute("**/logs/lines");
  await refresh();
  await expect.poll(() => page.locator("main > div").count()).toBe(1);
  expect(await page.locator(".line-item").count()).toBeGreaterThan(5);
});

describe("sites and sources that a reload has changed", () => {
  /** What the server tells, with these sources of the demo; further answers are those of the server. */
  async function tell(sources: readonly string[], times?: number): Promise<void> {
    const json = { user: "ana", sites: [{ id: "demo-shop", sources, deploys: true }], deadline_ms: 30_000 };
    await page.route(
      "**/console/viewer",
      (route) => route.fulfill({ json }),
      times === undefined ? {} : { times },
    );
  }
  const chips = () => page.locator(".chip").allTextContents();
  const all = ["app", "nginx", "worker"];

  test("are read with a view that is read anew", async () => {
    await tell(["app"], 1);
    await open(address("logs"));
    await page.locator(".line-item").first().waitFor();
    expect(await chips()).toEqual(["app"]);
    await page.locator("#main").focus();
    await refresh();
    expect(await chips()).toEqual(all);
  });

  test("are read again where one is not there any more", async () => {
    await tell(["app", "gone"], 1);
    const refused = page.waitForResponse((answer) => answer.status() === 422);
    await open(address("logs"));
    await refused;
    await page.locator(".line-item").first().waitFor();
    expect(await chips()).toEqual(all);
  });

  test("are not asked for without end where one is not there", async () => {
    let asked = 0;
    page.on("request", (request) => {
      if (request.url().endsWith("/console/viewer")) asked += 1;
    });
    await tell(["gone"]);
    await open(address("logs"));
    await page.locator(".state-failed").waitFor();
    await page.waitForLoadState("networkidle");
    // Once to begin with, and at most once for each request of the view.
    expect(asked).toBeGreaterThan(1);
    expect(asked).toBeLessThan(5);
  });

  test("are read again where the address names an unknown site", async () => {
    await page.route(
      "**/console/viewer",
      (route) => route.fulfill({ json: { user: "ana", sites: [], deadline_ms: 30_000 } }),
      { times: 1 },
    );
    await open(address("logs", { site: "demo-shop" }));
    await page.locator(".line-item").first().waitFor();
    expect(await page.getByLabel("Site").locator("option").allTextContents()).toEqual([
      "demo-shop",
      "demo-blog",
    ]);
  });

  test("are read again where a reload ends a live tail", async () => {
    await tell(["app"], 1);
    await page.route("**/logs/lines", (route) => {
      if (route.request().headers().accept !== "text/event-stream") return route.fallback();
      const body = 'event: end\ndata: {"reason":"reloaded"}\n\n';
      return route.fulfill({ contentType: "text/event-stream", body });
    });
    await open("#/logs?live=1");
    await expect.poll(chips).toEqual(all);
    await page.locator(".line-item").first().waitFor();
  });
});

describe("a view stays as it is", () => {
  test("where something is typed meanwhile, and says so", async () => {
    await open(address("logs"));
    await page.locator(".line-item").nth(5).waitFor();
    await page.locator("#main").focus();
    await actDuringRefresh("logs/lines", () => queryBox().pressSequentially("severity=err"));
    expect(await queryBox().inputValue()).toBe("severity=err");
    expect(await queryBox().evaluate((area) => area === document.activeElement)).toBe(true);
    expect(await unread()).toBe("Not read anew: something is typed, selected or open.");
  });

  test("where a row is opened meanwhile", async () => {
    await open(address("logs"));
    await page.locator(".line-item").nth(5).waitFor();
    await page.locator("#main").focus();
    await actDuringRefresh("logs/lines", () => page.locator(".line-item .line").nth(2).click());
    expect(state().get("line")).toBeTruthy();
    expect(await readOpenLines()).toEqual([2]);
  });

  test("where something was typed and not sent, a menu is open, or a text is selected", async () => {
    await open(address("traces"));
    await page.locator(".traces tbody tr").first().waitFor();
    await page.getByLabel("Action").fill("Checkout");
    await page.locator("#main").focus();
    await page.keyboard.press("r");
    await expect.poll(unread).toMatch(/^Not read anew/);
    expect(await page.getByLabel("Action").inputValue()).toBe("Checkout");
    await page.getByLabel("Action").fill("");
    await page.locator("#main").focus();
    await refresh();
    await page.evaluate(() =>
      getSelection()?.selectAllChildren(document.querySelector("main .status-line") as Element),
    );
    await page.keyboard.press("r");
    await expect.poll(unread).toMatch(/^Not read anew/);
  });

  test("where it cannot be read, and says why", async () => {
    await open(address("actions"));
    await page.locator(".figures tbody tr").first().waitFor();
    const rows = await page.locator(".figures tbody tr").count();
    await page.route("**/tracing/actions", (route) => route.abort());
    await page.locator("#main").focus();
    await page.keyboard.press("r");
    await expect.poll(unread).toBe("Not read anew: The server cannot be reached.");
    expect(await page.locator(".figures tbody tr").count()).toBe(rows);
    await page.unroute("**/tracing/actions");
    await refresh();
    expect(await page.locator(".unread").count()).toBe(0);
  });
});

describe("a page whose modules could not be read", () => {
  test.each([
    { fault: "is not there", status: 503, body: "" },
    // What the browser has read, and cannot run, it does not ask for again.
    { fault: "broke off", status: 200, body: "export const a = (" },
  ])("is read by another click on it, where one $fault", async ({ status, body }) => {
    const module = "**/console/tables/sparkline.js";
    await page.route(module, (route) => route.fulfill({ status, contentType: "text/javascript", body }));
    await open(address("logs"));
    await page.locator(".line-item").first().waitFor();
    const tab = page.getByRole("link", { name: "Actions" });
    const unread = page.getByRole("alert").filter({ hasText: "could not be read from the server" });
    await tab.click();
    await unread.waitFor();
    await page.unroute(module);
    await tab.click();
    await page.locator(".figures tbody tr").first().waitFor();
    expect(page.url()).toContain("#/actions");
  });
});
