// Charts, counts and headings of the console on the demo: what a reader does with the mouse, and what is said of it.
import { describe, expect, test } from "vitest";
import {
  complaints,
  createLine,
  open,
  origin,
  page,
  prepareConsole,
  scrollUntil,
  state,
  token,
} from "./console-harness.ts";

prepareConsole();

/** A chart of so many series, an hour of them, whose values are the number of the series times ten, plus the minute. */
async function openChart(count: number, name = "queue_wait_seconds"): Promise<void> {
  const from = Date.parse("2026-01-31T12:00:00.000Z");
  const series = Array.from({ length: count }, (_, at) => ({
    id: `s${at}`,
    name,
    field: "gauge",
    tags: { worker: `w${at}` },
    min: at * 10,
    max: at * 10 + 59,
    data: Array.from({ length: 60 }, (_, minute) => ({
      timestamp: new Date(from + minute * 60_000).toISOString(),
      value: at * 10 + minute,
    })),
  }));
  await page.route("**/api/v2/metrics/names/*", (route) => route.fulfill({ json: [name] }));
  await page.route("**/api/v2/metrics/type_and_tags/*/*", (route) =>
    route.fulfill({ json: { metric_type: "gauge", available_tags: [["worker"]] } }),
  );
  await page.route("**/api/v2/metrics/timeseries", (route) =>
    route.fulfill({ json: { resolution: "MINUTELY", series } }),
  );
  await open(`#/metrics?${new URLSearchParams({ name, tags: "worker=*" })}`);
  await page.locator(".chart canvas").waitFor();
}

async function drag(from: number, to: number): Promise<void> {
  const box = await page.locator(".chart .u-over").boundingBox();
  const [x, y, width] = [box?.x ?? 0, (box?.y ?? 0) + (box?.height ?? 0) / 2, box?.width ?? 0];
  await page.mouse.move(x + width * from, y);
  await page.mouse.down();
  await page.mouse.move(x + width * to, y, { steps: 5 });
  await page.mouse.up();
}

const markersPath = "**/api/demo-shop/markers.json?*";
const markList = () => page.getByRole("list", { name: "Deploys that are marked" });

/** Each with its time and its name, the first one first. */
async function answerMarkers(...deploys: readonly (readonly [time: string, name: string])[]): Promise<void> {
  const markers = deploys.map(([created_at, short_revision]) => ({ created_at, short_revision })).reverse();
  await page.route(markersPath, (route) => route.fulfill({ json: { count: markers.length, markers } }));
}

/** What is asked of deploys from now on. */
function recordMarkerRequests(): readonly string[] {
  const asked: string[] = [];
  page.on("request", (request) => {
    if (request.url().includes("/markers.json")) asked.push(request.url());
  });
  return asked;
}

describe("a chart", () => {
  test("leaves later clicks alone after a stretch was chosen in it", async () => {
    await openChart(2);
    await drag(0.2, 0.6);
    await expect.poll(() => state().get("range")).toMatch(/^2026-01-31T12:1\dZ?/);
    await page.locator(".chart canvas").waitFor();
    await page.getByRole("link", { name: "Logs", exact: true }).click();
    await page.locator(".line-item").first().waitFor();
    for (const place of [300, 400, 500]) await page.mouse.click(900, place);
    await page.waitForTimeout(300);
    expect(page.url()).toContain("#/logs");
    expect(complaints).toEqual([]);
  });

  test("shows the value of each of 24 series under the cursor", async () => {
    await openChart(24);
    const cells = page.getByRole("region", { name: "Series" }).locator("tbody tr td:last-child");
    await cells.nth(23).waitFor();
    const box = await page.locator(".chart .u-over").boundingBox();
    await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) - 1, (box?.y ?? 0) + 50);
    await expect
      .poll(() => cells.allTextContents())
      .toEqual(Array.from({ length: 24 }, (_, at) => String(at * 10 + 59)));
    expect(await page.locator(".chart-readout").textContent()).toBe("2026-01-31 12:59 UTC");
    await page.mouse.move(5, 5);
    await expect.poll(() => cells.first().textContent()).toBe("–");
  });

  test("waits for the rules by which its parts lie over one another", async () => {
    await page.route("**/uplot.css", async (route) => {
      await new Promise((resolve) => setTimeout(resolve, 500));
      await route.continue();
    });
    await openChart(1);
    const over = await page
      .locator(".chart .u-over")
      .evaluate((element) => getComputedStyle(element).position);
    expect(over).toBe("absolute");
  });

  test("hides a series by a click on its name, and shows it again", async () => {
    await openChart(3);
    const name = page.getByRole("button", { name: "worker=w1", exact: true });
    const count = () =>
      page.locator(".chart canvas").evaluate((canvas) => {
        if (!(canvas instanceof HTMLCanvasElement)) return 0;
        const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
        let inked = 0;
        for (let at = 3; at < data.length; at += 4) if ((data[at] ?? 0) > 0) inked += 1;
        return inked;
      });
    const before = await count();
    await name.click();
    expect(await name.getAttribute("aria-pressed")).toBe("false");
    await expect.poll(count).toBeLessThan(before - 200);
    const over = await page.locator(".chart .u-over").boundingBox();
    await page.mouse.move((over?.x ?? 0) + 100, (over?.y ?? 0) + 50);
    await expect.poll(() => page.locator(".chart-readout").textContent()).toMatch(/worker=w0: .*worker=w2: /);
    expect(await page.locator(".chart-readout").textContent()).not.toContain("worker=w1");
    // It stays hidden in the colours of another theme.
    await page.evaluate(() => document.documentElement.setAttribute("data-theme", "dark"));
    await page.waitForTimeout(200);
    expect(await count()).toBeLessThan(before - 200);
    await page.evaluate(() => document.documentElement.setAttribute("data-theme", "light"));
    await name.focus();
    await page.keyboard.press("Enter");
    await expect.poll(count).toBe(before);
    expect(complaints).toEqual([]);
  });

  const recordTexts = async () => {
    await page.addInitScript(() => {
      const written: string[] = [];
      Reflect.set(window, "written", written);
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const right = x + this.measureText(text).width;
        written.push(right <= this.canvas.width ? text : `${text}, cut off`);
        return fillText.call(this, text, x, y);
      };
    });
    return (): Promise<readonly string[]> => page.evaluate(() => Reflect.get(window, "written"));
  };

  test("names the deploys that it marks, the last at its end too", async () => {
    const written = await recordTexts();
    await answerMarkers(["2026-01-31T12:10:00Z", "revisio"], ["2026-01-31T12:58:59Z", "last-on"]);
    await openChart(1);
    await expect.poll(written).toContain("revisio");
    expect(await written()).toContain("last-on");
    const told = ["revisio at 2026-01-31 12:10 UTC", "last-on at 2026-01-31 12:58 UTC"];
    expect(await markList().getByRole("listitem").allTextContents()).toEqual(told);
  });

  test("says where deploys could not be read, and marks them when they are", async () => {
    const written = await recordTexts();
    const down = { error: "source_unavailable", message: "the source is away", details: {} };
    await page.route(markersPath, (route) => route.fulfill({ status: 503, json: down }));
    await openChart(1);
    const told = page.getByText("Deploys are not marked. the source is away");
    await told.waitFor();
    await answerMarkers(["2026-01-31T12:10:00Z", "revisio"]);
    await told.getByRole("button", { name: "Try again" }).click();
    await expect.poll(written).toContain("revisio");
    expect(await told.count()).toBe(0);
  });

  test("says nothing more where there turn out to be no deploys", async () => {
    const down = { error: "source_unavailable", message: "the source is away", details: {} };
    await page.route(markersPath, (route) => route.fulfill({ status: 503, json: down }));
    await openChart(1);
    const told = page.getByText("Deploys are not marked. the source is away");
    await told.waitFor();
    await answerMarkers();
    await told.getByRole("button", { name: "Try again" }).click();
    await told.waitFor({ state: "detached" });
  });

  test("names the unit and the time at its axes", async () => {
    const written = await recordTexts();
    await openChart(1);
    await expect.poll(written).toContain("seconds");
    expect(await written()).toContain("Time (UTC)");
    expect(await page.getByRole("img").getAttribute("aria-label")).toContain("in seconds");
  });
});

describe("deploys", () => {
  const hour = "2026-01-31T12:00:00Z/2026-01-31T13:00:00Z";
  const counts = {
    total: 2,
    resolution: "MINUTELY",
    buckets: [{ timestamp: "2026-01-31T12:00:00Z", count: 2 }],
    groups: [{ value: "info", count: 2, buckets: [{ timestamp: "2026-01-31T12:00:00Z", count: 2 }] }],
  };
  const answerCounts = (total = counts.total) =>
    page.route("**/api/v2/logs/counts", (route) => route.fulfill({ json: { ...counts, total } }));

  test("are marked over the columns of log lines when the lines are there", async () => {
    const held = Promise.withResolvers<void>();
    await page.route("**/api/v2/logs/lines", async (route) => {
      await held.promise;
      await route.fulfill({ json: [createLine(1)] });
    });
    await answerCounts();
    const [half, same, end] = ["2026-01-31T12:30:00Z", "2026-01-31T12:30:01Z", "2026-01-31T12:59:59Z"];
    await answerMarkers([half, "in-half"], [same, "same"], [end, "the-end"]);
    const asked = recordMarkerRequests();
    await open(`#/logs?range=${hour}`);
    const drawing = page.locator(".histogram");
    await drawing.waitFor();
    expect(asked).toEqual([]);
    held.resolve();
    const names = page.locator(".histogram-mark > span");
    await names.first().waitFor();
    const told = ["in-half at 2026-01-31 12:30 UTC", "same at 2026-01-31 12:30 UTC"];
    expect(await markList().getByRole("listitem").allTextContents()).toEqual([
      ...told,
      "the-end at 2026-01-31 12:59 UTC",
    ]);
    for (const width of [1_000, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await expect.poll(async () => (await drawing.boundingBox())?.width ?? 0).toBeLessThan(width);
      // Of two at one place one is named, and the last one stands within the drawing.
      await expect
        .poll(() => names.filter({ visible: true }).allTextContents())
        .toEqual(["in-half", "the-end"]);
      const [box, first, last] = await Promise.all(
        [drawing, names.first(), names.last()].map((one) => one.boundingBox()),
      );
      expect(((first?.x ?? 0) - (box?.x ?? 0)) / (box?.width ?? 1)).toBeCloseTo(0.5, 1);
      expect((last?.x ?? 0) + (last?.width ?? 0)).toBeLessThanOrEqual((box?.x ?? 0) + (box?.width ?? 0));
    }
    // A stretch is chosen through the marks.
    const box = await drawing.boundingBox();
    await page.mouse.move((box?.x ?? 0) + 100, (box?.y ?? 0) + 5);
    await page.mouse.down();
    await page.mouse.move((box?.x ?? 0) + 250, (box?.y ?? 0) + 5, { steps: 3 });
    await page.mouse.up();
    await expect.poll(() => state().get("range")).not.toBe(hour);
    expect(complaints).toEqual([]);
  });

  test("stay in sight while they are read anew", async () => {
    await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [createLine(1)] }));
    await answerCounts();
    await answerMarkers(["2026-01-31T12:30:00Z", "revisio"], ["2026-01-31T12:50:00Z", "gone"]);
    await open(`#/logs?range=${hour}`);
    await markList().getByText("gone").waitFor({ state: "attached" });
    const held = Promise.withResolvers<void>();
    await page.route(markersPath, async (route) => {
      await held.promise;
      await route.fulfill({
        json: {
          count: 1,
          markers: [{ created_at: "2026-01-31T12:30:00Z", short_revision: "revisio" }],
        },
      });
    });
    const old = await page.locator(".histogram").elementHandle();
    await page.getByRole("button", { name: "Search" }).click();
    await expect.poll(() => old?.evaluate((one) => one.isConnected)).toBe(false);
    await markList().getByText("gone").waitFor({ state: "attached" });
    expect(await page.locator(".histogram-mark").count()).toBe(2);
    held.resolve();
    await markList().getByText("gone").waitFor({ state: "detached" });
    expect(await page.locator(".histogram-mark").count()).toBe(1);
    expect(complaints).toEqual([]);
  });

  test("are told not to be marked below the columns where they are too many to read", async () => {
    await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [createLine(1)] }));
    await answerCounts();
    const tooMany = { error: "result_too_large", message: "too many requests", details: {} };
    await page.route(markersPath, (route) => route.fulfill({ status: 422, json: tooMany }));
    await open(`#/logs?range=${hour}`);
    await page.getByText("Deploys are not marked. too many requests").waitFor();
    expect(await page.locator(".line-item").count()).toBe(1);
  });

  test("are marked in a visual, those of its own site", async () => {
    const from = new Date(Date.now() - 1_800_000).toISOString();
    await answerMarkers([from, "revisio"]);
    const asked = recordMarkerRequests();
    // Whatever site is looked at.
    await open("#/visuals?site=demo-blog&id=9Ubquyg0qqEEfpH6Xefmrg");
    await markList().getByText("revisio").waitFor({ state: "attached" });
    expect(asked).toHaveLength(1);
    expect(complaints).toEqual([]);
  });

  test("are not asked for where a range is empty, nor where the token may not read them", async () => {
    const asked = recordMarkerRequests();
    await answerCounts(0);
    await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [] }));
    await open(`#/logs?range=${hour}`);
    await page.locator(".state-title", { hasText: "No lines" }).waitFor();
    await page.waitForLoadState("networkidle");
    expect(asked).toEqual([]);
    const site = { id: "demo-shop", sources: ["app"], deploys: false };
    await page.route("**/console/viewer", (route) => route.fulfill({ json: { user: "u", sites: [site] } }));
    await page.route("**/console/visuals/*/site", (route) => route.fulfill({ json: site }));
    await answerCounts();
    await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [createLine(1)] }));
    for (const [address, shown] of [
      [`#/logs?range=${hour}`, ".histogram"],
      ["#/metrics?name=cpu", ".chart canvas"],
      ["#/visuals?id=9Ubquyg0qqEEfpH6Xefmrg", ".chart canvas"],
    ] as const) {
      await page.goto("about:blank");
      await open(address);
      await page.locator(shown).waitFor();
      await page.waitForLoadState("networkidle");
    }
    expect(asked).toEqual([]);
  });
});

describe("how many rows there are", () => {
  const tooMany = { error: "result_too_large", message: "too many", details: {} };
  const line = (at: number) => ({
    id: `i/${at}`,
    timestamp: new Date(1_770_000_000_000 - at * 1_000).toISOString(),
    source_id: "app",
    severity: "info",
    message: `line ${at}`,
    hostname: "",
    group: "",
    json: "{}",
    attributes: {},
  });

  test("is never said of a list that has further pages and is not counted", async () => {
    let left = 200;
    await page.route("**/api/v2/logs/counts", (route) => route.fulfill({ status: 422, json: tooMany }));
    await page.route("**/api/v2/logs/lines", (route) => {
      const rows = Array.from({ length: Math.min(100, left) }, (_, at) => line(200 - left + at));
      left -= rows.length;
      return route.fulfill({ json: rows });
    });
    await open();
    await page.getByText(/^100 lines loaded, there are more, newest first/).waitFor();
    // Scrolling asks for the next page too.
    const isAll = page.getByText(/^200 lines, newest first/);
    const areMore = page.getByText(/^200 lines loaded, there are more/);
    await scrollUntil(() => areMore.or(isAll).isVisible());
    // The third page is empty: only then are 200 lines all.
    await scrollUntil(() => isAll.isVisible());
    expect(complaints).toEqual([]);
  });

  test("is said of a list that is complete", async () => {
    await page.route("**/api/v2/logs/counts", (route) => route.fulfill({ status: 422, json: tooMany }));
    await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [line(1), line(2)] }));
    await open();
    await page.getByText(/^2 lines, newest first/).waitFor();
  });

  test("is never said of traces with further pages", async () => {
    await open("#/traces?range=24h");
    await page.getByText(/^50 traces loaded, there are more, newest first/).waitFor();
  });
});

test("each error of the listing has its type and message", async () => {
  await open("#/traces?kind=errors");
  const row = page.locator(".traces tbody tr", { hasText: "CheckoutController#create" });
  await row.first().getByText("PaymentError: card declined").waitFor();
  const told = await page.locator(".exception").allTextContents();
  expect(told.length).toBeGreaterThan(10);
  expect(told.filter((text) => !/^[\w:]+: .+/.test(text))).toEqual([]);
  expect(complaints).toEqual([]);
});

test("a site that is not there has a heading", async () => {
  await open("#/logs?site=nowhere");
  await page.getByRole("heading", { level: 1, name: "No such site" }).waitFor();
  expect(await page.getByRole("heading", { level: 1 }).count()).toBe(1);
});

test("the page of the API takes the console's token", async () => {
  await open();
  await page.locator(".line-item").first().waitFor();
  await page.goto(`${origin}/docs`);
  await page.locator(".opblock").first().waitFor();
  const asked = page.waitForRequest((request) => request.url().includes("/api/v2/auth"));
  await page.locator(".opblock", { hasText: "/api/v2/auth" }).first().locator(".opblock-summary").click();
  await page.getByRole("button", { name: "Execute" }).click();
  const request = await asked;
  expect(request.headers().authorization).toBe(`Bearer ${token}`);
  expect(request.url()).not.toContain(token);
  expect((await request.response())?.status()).toBe(200);
});
