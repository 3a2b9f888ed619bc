// The view of traces on the demo, and what all views have: zones, keys, explanations and reading anew.
import { describe, expect, test } from "vitest";
import {
  ask,
  complaints,
  open,
  page,
  prepareConsole,
  queryBox,
  rememberPlace,
  scrollUntil,
  state,
} from "./console-harness.ts";

prepareConsole();

/** A range that is over, so that nothing is added to it. */
const range = {
  from: new Date(Date.now() - 3_600_000).toISOString(),
  to: new Date(Date.now() - 60_000).toISOString(),
};
const within = `range=${encodeURIComponent(`${range.from}/${range.to}`)}`;

/** Scrolls up so far that no further page is asked for, and waits for one that is under way. */
async function scrollFromEnd(pixels: number): Promise<void> {
  await page.evaluate(async (pixels) => {
    scrollBy(0, -pixels);
    // An observer that saw the end before may ask in the next frame still.
    for (let frame = 0; frame < 2; frame += 1)
      await new Promise<number>((resolve) => requestAnimationFrame(resolve));
  }, pixels);
  await expect.poll(() => page.locator(".foot .spinner").count()).toBe(0);
}

async function openCheckout(): Promise<readonly string[]> {
  const rows = await ask("tracing/traces/errors", {
    site_ids: ["demo-shop"],
    ...range,
    action_name: "CheckoutController#create",
    pagination: { per_page: 2, order: "DESC", cursor: "Time" },
  });
  const ids = rows.map((row) => String(row.trace_id));
  await open(`#/trace?id=${ids[0]}`);
  await page.locator(".span-item").nth(3).waitFor();
  return ids;
}

test("durations are those of the listing, and a stretch of them chooses traces", async () => {
  await open(`#/traces?${within}`);
  await page.locator(".duration-bar").first().waitFor();
  const body = { site_ids: ["demo-shop"], ...range };
  const rows = await ask("tracing/traces/performance", {
    ...body,
    pagination: { per_page: 1_000, order: "DESC", cursor: "Time" },
  });
  const counts = await page
    .locator(".duration-bar")
    .evaluateAll((all) => all.map((one) => Number(one.getAttribute("data-count"))));
  // The drawing is named, and a text beside it would be the same words again.
  expect(await page.getByRole("img", { name: /^Durations of / }).count()).toBe(1);
  expect(await page.getByText(/^Durations of /).count()).toBe(0);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(rows.length);
  const box = await page.locator(".durations").boundingBox();
  const [x, y, width] = [box?.x ?? 0, (box?.y ?? 0) + 20, box?.width ?? 0];
  await page.mouse.move(x + width * 0.3, y);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.6, y, { steps: 4 });
  await page.mouse.up();
  await expect.poll(() => state().has("below")).toBe(true);
  const [min, below] = [Number(state().get("min")), Number(state().get("below"))];
  await expect.poll(() => page.locator(".traces tbody tr").count()).toBeGreaterThan(0);
  await page.locator(".duration-bar").first().waitFor();
  const expected = rows.filter((row) => Number(row.duration) >= min && Number(row.duration) < below).length;
  const left = () =>
    page
      .locator(".duration-bar")
      .evaluateAll((all) => all.reduce((sum, one) => sum + Number(one.getAttribute("data-count")), 0));
  if (rows.length < 1_000) await expect.poll(left).toBe(expected);
  expect(complaints).toEqual([]);
});

test("durations are marked where their columns begin", async () => {
  await open(`#/traces?${within}`);
  const bars = page.locator(".duration-bar");
  await bars.first().waitFor();
  const lefts = await bars.evaluateAll((all) =>
    all.map((bar) => ({
      left: bar.getBoundingClientRect().left,
      from: bar.textContent?.split(" to ")[0],
    })),
  );
  const marks = await page
    .locator(".duration-scale > span")
    .evaluateAll((all) =>
      all.map((mark) => ({ box: mark.getBoundingClientRect().toJSON(), text: mark.textContent })),
    );
  expect(marks.length).toBeGreaterThan(3);
  for (const { box, text } of marks.slice(1, -1)) {
    const centre = box.left + box.width / 2;
    const nearest = lefts.toSorted((a, b) => Math.abs(a.left - centre) - Math.abs(b.left - centre))[0];
    expect(nearest?.from).toBe(text);
    expect(Math.abs((nearest?.left ?? 0) - centre)).toBeLessThan(2);
  }
});

test("durations say why they are not drawn, and are tried again", async () => {
  const isDrawn = (body: string | null) => body?.includes('"per_page":1000') === true;
  let isDown = true;
  await page.route("**/tracing/traces/performance", (route) =>
    isDown && isDrawn(route.request().postData())
      ? route.fulfill({ status: 504, json: { error: "A source does not answer" } })
      : route.continue(),
  );
  await open(`#/traces?${within}`);
  await page.getByText("These durations are not drawn. A source does not answer").waitFor();
  await page.locator(".traces tbody tr").first().waitFor();
  isDown = false;
  await page.locator(".duration-box").getByRole("button", { name: "Try again" }).click();
  await page.locator(".duration-bar").first().waitFor();
});

describe("a trace", () => {
  test("folds, is searched, zooms and shows its critical path", async () => {
    await openCheckout();
    const rows = page.locator(".span-item");
    const all = await rows.count();
    const visible = () => page.locator(".span-item:not([hidden])").count();
    await page.getByRole("button", { name: "Spans below it" }).first().click();
    expect(await visible()).toBe(1);
    await page.getByRole("button", { name: "Spans below it" }).first().click();
    expect(await visible()).toBe(all);
    await page.getByLabel("Find in spans").fill("reservations");
    await expect.poll(() => page.locator(".span-item[data-sought]").count()).toBeGreaterThan(0);
    expect(await page.locator(".critical").count()).toBeGreaterThan(1);
    const box = await page.locator(".scale").boundingBox();
    const bar = page.locator(".waterfall .bar-fill").first();
    const before = (await bar.boundingBox())?.width ?? 0;
    await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) * 0.25, (box?.y ?? 0) + 8);
    await page.mouse.down();
    await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) * 0.75, (box?.y ?? 0) + 8, { steps: 4 });
    await page.mouse.up();
    await expect.poll(async () => (await bar.boundingBox())?.width ?? 0).toBeGreaterThan(before * 1.8);
    await page.getByRole("button", { name: "Whole trace" }).click();
    await expect.poll(async () => (await bar.boundingBox())?.width ?? 0).toBeLessThan(before * 1.1);
    expect(complaints).toEqual([]);
  });

  test("keeps its folds and its stretch in another time zone, and loses them with another trace", async () => {
    const [, other = ""] = await openCheckout();
    const folds = page.getByRole("button", { name: "Spans below it" });
    const list = page.locator(".waterfall");
    await folds.first().click();
    const box = await page.locator(".scale").boundingBox();
    await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) * 0.25, (box?.y ?? 0) + 8);
    await page.mouse.down();
    await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) * 0.75, (box?.y ?? 0) + 8, { steps: 4 });
    await page.mouse.up();
    await page.getByRole("button", { name: "Whole trace" }).waitFor();
    const stretch = await list.getAttribute("style");
    const old = await list.elementHandle();
    await page.getByRole("button", { name: /^Time zone/ }).click();
    await expect.poll(() => old?.evaluate((one) => one.isConnected)).toBe(false);
    await list.waitFor();
    expect(await list.getAttribute("style")).toBe(stretch);
    expect(await folds.first().getAttribute("aria-expanded")).toBe("false");
    expect(await page.locator(".span-item:not([hidden])").count()).toBe(1);
    await page.getByRole("button", { name: "Whole trace" }).click();
    await page.evaluate((id) => location.assign(`#/trace?site=demo-shop&id=${id}`), other);
    await expect.poll(() => folds.first().getAttribute("aria-expanded")).toBe("true");
    await page.getByRole("button", { name: "Whole trace" }).waitFor({ state: "detached" });
  });

  test("is compared with another one", async () => {
    const [, other = ""] = await openCheckout();
    await page.getByLabel("Compare with").fill(other);
    await page.getByRole("button", { name: "Compare" }).click();
    await expect.poll(() => state().get("other")).toBe(other);
    await page.getByRole("region", { name: "Comparison" }).locator("tbody tr").nth(3).waitFor();
  });

  test("has the span open that was open when it is compared", async () => {
    const [, other = ""] = await openCheckout();
    await page.locator(".waterfall details:not([open]) > summary").nth(1).click();
    await expect.poll(() => state().get("open")).toMatch(/^[0-9a-f]{16}$/);
    const opened = state().get("open");
    await page.getByLabel("Compare with").fill(other);
    await page.getByRole("button", { name: "Compare" }).click();
    await expect.poll(() => state().get("other")).toBe(other);
    expect(state().get("open")).toBe(opened);
    await page.locator(".waterfall details[open] .opened").first().waitFor();
  });
});

describe("all views", () => {
  test("show times in the browser's zone when that is chosen", async () => {
    await open(`#/logs?${within}`);
    await page.locator(".line-item").first().waitFor();
    await page.getByRole("button", { name: /^Time zone/ }).click();
    await page
      .getByText(/\d\d [+−]\d\d:\d\d$/)
      .first()
      .waitFor();
    await page.getByRole("button", { name: /^Time zone/ }).click();
    await page.getByText(/ UTC$/).first().waitFor();
  });

  test("are walked by keys", async () => {
    await open(`#/logs?${within}`);
    await page.locator(".line-item").nth(5).waitFor();
    await page.locator("#main").focus();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    const at = () =>
      page.evaluate(() =>
        [...document.querySelectorAll(".line-item")].findIndex((one) => one.contains(document.activeElement)),
      );
    expect(await at()).toBe(1);
    await page.keyboard.press("k");
    expect(await at()).toBe(0);
    await page.keyboard.press("/");
    expect(await queryBox().evaluate((area) => area === document.activeElement)).toBe(true);
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
  });

  test("explain what they ask", async () => {
    await open(
      `#/logs?${new URLSearchParams({ query: "severity=error", range: `${range.from}/${range.to}` })}`,
    );
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByRole("dialog", { name: "Explanation" }).getByText("means").waitFor();
    expect(complaints).toEqual([]);
  });

  test.each([
    {
      view: "logs",
      rows: ".line-item",
      drawing: ".histogram",
      isSlow: (url: string) => url.endsWith("/counts"),
    },
    {
      view: "traces",
      rows: ".traces tbody tr",
      drawing: ".durations",
      isSlow: (url: string, body: string | null) =>
        url.endsWith("/performance") && body?.includes('"per_page":1000') === true,
    },
  ])("are read anew without losing what is shown or the place in it: $view", async (one) => {
    const { view, rows, drawing, isSlow } = one;
    await open(`#/${view}?${within}`);
    await page.locator(rows).nth(45).waitFor();
    await page.locator(drawing).waitFor();
    await page.evaluate(() => scrollTo(0, 600));
    const first = await page
      .locator(rows)
      .first()
      .evaluateHandle((one) => one);
    const place = () => page.locator(rows).nth(20).boundingBox();
    const before = await place();
    // What stands above the rows comes after them, and must not push them down.
    let slowed = 0;
    await page.route("**/api/v2/**", async (route) => {
      if (isSlow(route.request().url(), route.request().postData())) {
        slowed++;
        await new Promise((resolve) => setTimeout(resolve, 700));
      }
      await route.continue();
    });
    await page.locator("#main").focus();
    await page.keyboard.press("r");
    await expect.poll(() => first.evaluate((element) => element.isConnected)).toBe(false);
    expect(slowed).toBe(1);
    expect(await place()).toEqual(before);
    expect(await page.evaluate(() => scrollY)).toBe(600);
    expect(complaints).toEqual([]);
  });

  test("are read anew as far as they were read", async () => {
    await open(`#/logs?${within}`);
    const told = page.locator(".status-line");
    const countLoaded = async () => Number(/^\d+/.exec((await told.textContent()) ?? "")?.[0]);
    await page.locator(".line-item").nth(60).waitFor();
    await scrollUntil(async () => (await countLoaded()) >= 300);
    await scrollFromEnd(3_000);
    const loaded = await countLoaded();
    const place = await page.evaluate(() => scrollY);
    const old = await page.locator("main").evaluateHandle((main) => main.querySelector(".status-line"));
    await page.locator("#main").focus();
    await page.keyboard.press("r");
    await expect.poll(() => old.evaluate((element) => element?.isConnected)).toBe(false);
    await expect.poll(countLoaded).toBe(loaded);
    expect(await page.evaluate(() => scrollY)).toBe(place);
    expect(complaints).toEqual([]);
  });

  test.each([
    { view: "logs", rows: ".line-item", perPage: 100 },
    { view: "traces", rows: ".traces tbody tr", perPage: 50 },
  ])("are come back to where they were left: $view", async ({ view, rows, perPage }) => {
    await open(`#/${view}?${within}`);
    const count = () => page.locator(rows).count();
    await page.locator(rows).first().waitFor();
    await scrollUntil(async () => (await count()) >= 3 * perPage);
    await scrollFromEnd(2_000);
    const [loaded, isInPlace] = [await count(), await rememberPlace()];
    const leave = async (): Promise<void> => {
      await page.getByRole("link", { name: "Deploys" }).click();
      await page.locator(".figures tbody tr").first().waitFor();
    };
    const isThere = async (): Promise<void> => {
      await expect.poll(count).toBe(loaded);
      await isInPlace();
    };
    await leave();
    await page.goBack();
    await isThere();
    // A switch of the time zone is no step to elsewhere, either.
    await page.getByRole("button", { name: /^Time zone/ }).dispatchEvent("click");
    await isThere();
    // What is opened anew begins at its top.
    await leave();
    await page.getByRole("link", { name: view === "logs" ? "Logs" : "Traces", exact: true }).click();
    await page.locator(rows).first().waitFor();
    expect(await page.evaluate(() => scrollY)).toBe(0);
    expect(complaints).toEqual([]);
  });
});
