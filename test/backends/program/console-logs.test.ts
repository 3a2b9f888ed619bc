// The view of log lines on the demo: what it counts is what the API counts, and what is clicked is what is asked.
import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import {
  complaints,
  createLine,
  measureLongestTask,
  open,
  origin,
  page,
  prepareConsole,
  queryBox,
  rememberPlace,
  scrollUntil,
  state,
  token,
} from "./console-harness.ts";

prepareConsole();

/** A range that is over, so that nothing is added to it. */
const range = {
  from: new Date(Date.now() - 3_600_000).toISOString(),
  to: new Date(Date.now() - 60_000).toISOString(),
};
const selection = { site_id: "demo-shop", source_ids: ["app", "nginx", "worker"], use_expressions: true };
const address = (more: Readonly<Record<string, string>> = {}) =>
  `#/logs?${new URLSearchParams({ ...more, range: `${range.from}/${range.to}` })}`;

async function count(body: object) {
  const answer = await fetch(`${origin}/api/v2/logs/counts`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ ...selection, query: "", ...range, ...body }),
  });
  return (await answer.json()) as {
    readonly total: number;
    readonly groups: readonly { readonly value: string; readonly count: number }[];
  };
}

const plain = (value: number) => value.toLocaleString("en");

describe("the histogram", () => {
  test("has the counts of the API, told apart from what is loaded", async () => {
    await open(address());
    const { total, groups } = await count({ group_by: "severity" });
    // A second page is read too where the first ends in sight, and a page has all lines of its last millisecond.
    await page.getByText(new RegExp(`^[\\d,]{3,} of ${plain(total)} lines loaded, newest first`)).waitFor();
    const legend = await page.locator(".legend-part").allTextContents();
    expect(legend.toSorted()).toEqual(
      groups.map((one) => `Only ${one.value} ${plain(one.count)}`).toSorted(),
    );
    // Each column's height is its part of the highest one.
    const drawn = await page
      .locator(".histogram rect:not(.brush)")
      .evaluateAll((all) =>
        all.map(
          (one) => [one.getAttribute("data-severity") ?? "", Number(one.getAttribute("height"))] as const,
        ),
      );
    const bySeverity = new Map<string, number>();
    for (const [severity, height] of drawn)
      bySeverity.set(severity, (bySeverity.get(severity) ?? 0) + height);
    const ratio = (bySeverity.get("info") ?? 0) / (bySeverity.get("warn") ?? 1);
    const counted = new Map(groups.map((one) => [one.value, one.count]));
    expect(ratio).toBeCloseTo((counted.get("info") ?? 0) / (counted.get("warn") ?? 1), 0);
    expect(complaints).toEqual([]);
  });

  test("a stretch of it becomes the range, and back undoes that", async () => {
    await open(address());
    const box = await page.locator(".histogram").boundingBox();
    const [x, y, width] = [box?.x ?? 0, (box?.y ?? 0) + 30, box?.width ?? 0];
    await page.mouse.move(x + width / 4, y);
    await page.mouse.down();
    await page.mouse.move(x + width / 2, y, { steps: 4 });
    await page.mouse.up();
    await expect.poll(() => state().get("range")).not.toBe(`${range.from}/${range.to}`);
    const [from = "", to = ""] = state().get("range")?.split("/") ?? [];
    const length = Date.parse(range.to) - Date.parse(range.from);
    expect(Math.abs(Date.parse(from) - Date.parse(range.from) - length / 4)).toBeLessThan(length / 100);
    expect(Math.abs(Date.parse(to) - Date.parse(range.from) - length / 2)).toBeLessThan(length / 100);
    const { total } = await count({ from, to });
    await page
      .getByText(new RegExp(`(of )?${plain(total)} lines`))
      .first()
      .waitFor();
    await page.goBack();
    await expect.poll(() => state().get("range")).toBe(`${range.from}/${range.to}`);
  });

  test("a severity below it narrows the query", async () => {
    await open(address());
    await page.getByRole("button", { name: /^Only warn / }).click();
    await expect.poll(() => state().get("query")).toBe("severity=warn");
  });

  test("says that it failed, before the lines are there, and is tried again", async () => {
    const held = Promise.withResolvers<void>();
    await page.route("**/api/v2/logs/lines", async (route) => {
      await held.promise;
      await route.continue();
    });
    await page.route("**/api/v2/logs/counts", (route) => route.fulfill({ status: 200, body: '{"total":' }));
    await open(address());
    const box = page.locator(".histogram-box");
    await box.getByText("These lines are not counted.").waitFor();
    expect(await page.locator(".line-item").count()).toBe(0);
    await page.unroute("**/api/v2/logs/counts");
    await box.getByRole("button", { name: "Try again" }).click();
    await page.locator(".histogram rect").first().waitFor();
    held.resolve();
    await page.locator(".line-item").first().waitFor();
  });

  test("does not offer to try again what is not there", async () => {
    const missing = { error: "not_found", message: "no such site", details: {} };
    await page.route("**/api/v2/logs/counts", (route) => route.fulfill({ status: 404, json: missing }));
    await open(address());
    const box = page.locator(".histogram-box");
    await box.getByText("These lines are not counted. no such site").waitFor();
    expect(await box.getByRole("button", { name: "Try again" }).count()).toBe(0);
  });

  test("says why it is not there, and the lines are there all the same", async () => {
    const message = "To count these lines 5000000 documents would have to be read";
    const refusal = { error: "result_too_large", message, details: { limit: 1_000_000 } };
    await page.route("**/api/v2/logs/counts", (route) => route.fulfill({ status: 422, json: refusal }));
    await open(address());
    await page.getByText(message).waitFor();
    await page.getByText(/^[\d,]{3,} lines loaded, there are more/).waitFor();
    expect(complaints).toEqual([]);
  });
});

describe("the fields", () => {
  test("have the largest values of the API, which narrow the query", async () => {
    await open(address({ sources: "nginx" }));
    const { groups } = await count({ source_ids: ["nginx"], group_by: "status" });
    await page.locator(".fields summary", { hasText: /^status$/ }).click();
    const values = page.locator(".field-value");
    await expect
      .poll(() => values.allTextContents())
      .toEqual(groups.map((one) => `Only where status is ${one.value}${plain(one.count)}`));
    await values.first().click();
    await expect.poll(() => state().get("query")).toBe(`status=${groups[0]?.value}`);
    await page.getByText(new RegExp(`of ${plain(groups[0]?.count ?? 0)} lines loaded`)).waitFor();
  });

  test("may be columns, which are in the address", async () => {
    await open(address({ sources: "nginx" }));
    await page.getByRole("button", { name: "Show request.method as a column" }).click();
    await expect.poll(() => state().get("columns")).toBe("request.method");
    const cells = page.locator(".line-item .line-cell");
    await cells.nth(99).waitFor();
    expect(await cells.first().textContent()).toMatch(/^request\.method: (GET|POST)$/);
    await page.getByRole("button", { name: "Take the column request.method away" }).click();
    await expect.poll(() => state().has("columns")).toBe(false);
  });
});

test("fields for which the list has no room are counted below it", async () => {
  const json = JSON.stringify(Object.fromEntries(Array.from({ length: 1_234 }, (_, at) => [`f${at}`, at])));
  await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [{ ...createLine(1), json }] }));
  await open();
  await page.getByText("Further fields, not listed: 1,034. A query may name them.").waitFor();
  expect(await page.locator(".fields > li").count()).toBe(204);
});

test("the query is completed by fields, operators and values, by the keyboard", async () => {
  await open(address({ sources: "nginx" }));
  await page.locator(".line-item").nth(50).waitFor();
  await queryBox().pressSequentially("stat");
  const option = (name: string | RegExp) => page.getByRole("option", { name });
  await option(/^status$/).waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await option(/^status!=/).waitFor();
  expect(await queryBox().inputValue()).toBe("status");
  await queryBox().pressSequentially("=");
  await option(/^200 /).waitFor();
  await page.keyboard.press("Escape");
  await expect.poll(() => page.getByRole("listbox").count()).toBe(0);
  await queryBox().pressSequentially("404");
  await page.keyboard.press("Enter");
  await expect.poll(() => state().get("query")).toBe("status=404");
  expect(complaints).toEqual([]);
});

test("a key `source` of the body is completed with its own values, not with the sources of the site", async () => {
  const json = JSON.stringify({ source: "cron" });
  await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [{ ...createLine(1), json }] }));
  await page.route("**/api/v2/logs/counts", (route) => {
    if (route.request().postDataJSON().group_by !== "\\source") return route.fallback();
    const groups = [{ value: "cron", count: 1 }];
    return route.fulfill({ json: { total: 1, buckets: [], groups, lacking: 0, other: 0 } });
  });
  await open();
  await page.locator(".line-item").waitFor();
  await queryBox().pressSequentially("sour");
  await page.getByRole("option", { name: "source", exact: true }).waitFor();
  await queryBox().pressSequentially("ce=");
  await page.getByRole("option", { name: /^cron / }).waitFor();
  expect(complaints).toEqual([]);
});

test("what is sought is marked in the messages", async () => {
  await open(address({ query: "message:placed" }));
  await page.locator(".lines mark").nth(50).waitFor();
  const marked = await page.locator(".lines mark").allTextContents();
  expect(new Set(marked)).toEqual(new Set(["placed"]));
});

test("a line has the lines before and after it, whatever the query is", async () => {
  await open(address({ query: "severity=error", sources: "nginx" }));
  await page.locator(".line-item > .line").nth(20).click();
  await page.getByRole("button", { name: "Lines around it" }).click();
  const around = page.locator(".context > li");
  await expect.poll(() => around.count()).toBe(11);
  const times = await around.evaluateAll((all) => all.map((one) => one.getAttribute("data-time") ?? ""));
  expect(times).toEqual(times.toSorted());
  expect(await around.evaluateAll((all) => all.findIndex((one) => one.hasAttribute("aria-current")))).toBe(5);
  await page.getByRole("button", { name: "More lines around it" }).click();
  await expect.poll(() => around.count()).toBe(21);
});

test.each([
  ["its millisecond", "", ""],
  ["its millisecond, of which each page numbers the parts", "714998", "000001"],
])("lines around one are as many where others share %s", async (_, part, otherPart) => {
  const first = Date.parse("2026-01-15T10:00:00.000Z");
  // Twenty lines of one millisecond, and one in each millisecond before and after.
  const lines = Array.from({ length: 60 }, (_, n) => ({
    ...createLine(n),
    id: `around-${n}`,
    timestamp: new Date(first + (n < 20 ? n : n < 40 ? 20 : n - 20)).toISOString(),
  }));
  await page.route("**/api/v2/logs/lines", (route) => {
    const { from, to, pagination } = route.request().postDataJSON();
    const addDigits = (line: (typeof lines)[number] | undefined, digits: string) =>
      line?.timestamp === lines[33]?.timestamp
        ? { ...line, timestamp: line?.timestamp.replace("Z", `${digits}Z`) }
        : line;
    if (pagination.per_page > 80) return route.fulfill({ json: [addDigits(lines[33], part)] });
    const found = lines.filter(
      ({ timestamp }) => (from ?? timestamp) <= timestamp && timestamp <= (to ?? timestamp),
    );
    if (pagination.order === "DESC") found.reverse();
    const last = found[pagination.per_page - 1]?.timestamp;
    return route.fulfill({
      json: found
        .filter((one, at) => at < pagination.per_page || one.timestamp === last)
        .map((one) => addDigits(one, otherPart)),
    });
  });
  await open(address());
  await page.locator(".line-item > .line").first().click();
  await page.getByRole("button", { name: "Lines around it" }).click();
  const around = page.locator(".context > li");
  await expect.poll(() => around.count()).toBe(11);
  const readTexts = () => around.locator(".line-message").allTextContents();
  expect(await readTexts()).toEqual(Array.from({ length: 11 }, (_, at) => `line ${28 + at}`));
  await page.getByRole("button", { name: "More lines around it" }).click();
  await expect.poll(() => around.count()).toBe(21);
  expect(await readTexts()).toEqual(Array.from({ length: 21 }, (_, at) => `line ${23 + at}`));
});

test("a line beyond the first of its millisecond stands among the lines around it", async () => {
  const line = { ...createLine(4), timestamp: "2026-01-31T12:00:04.000998Z" };
  await page.route("**/api/v2/logs/lines", (route) => {
    const { from, to, pagination } = route.request().postDataJSON();
    if (pagination.per_page > 80) return route.fulfill({ json: [line] });
    const beside = Array.from({ length: 9 }, (_, n) => ({ ...createLine(4), id: `first-${n}` }));
    const found = from !== undefined && to !== undefined ? beside : [createLine(from === undefined ? 3 : 5)];
    return route.fulfill({ json: found });
  });
  await open(address());
  await page.locator(".line-item > .line").first().click();
  await page.getByRole("button", { name: "Lines around it" }).click();
  const around = page.locator(".context > li");
  await expect.poll(() => around.count()).toBe(3);
  expect(await around.locator(".line-message").allTextContents()).toEqual(["line 3", "line 4", "line 5"]);
});

test("all lines of the range are exported as a file", async () => {
  await open(address({ query: "severity=error" }));
  const { total } = await count({ query: "severity=error" });
  await page.getByText("Export", { exact: true }).click();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "All lines as NDJSON" }).click(),
  ]);
  const rows = (await readFile(await download.path(), "utf8")).trimEnd().split("\n");
  expect(rows).toHaveLength(total);
  expect(rows.every((row) => JSON.parse(row).severity === "error")).toBe(true);
  expect(complaints).toEqual([]);
});

test("a search is saved in this browser, and opened again", async () => {
  await open(address({ query: "severity=fatal" }));
  await page.getByText("Saved").click();
  await page.getByLabel("Name of this search").fill("what died");
  await page.getByLabel("Name of this search").press("Enter");
  await page.goto(`${origin}/#/traces`);
  await page.locator(".traces tbody tr").first().waitFor();
  await page.goto(`${origin}/#/logs`);
  await page.getByText("Saved").click();
  await page.getByRole("link", { name: "what died" }).click();
  await expect.poll(() => state().get("query")).toBe("severity=fatal");
});

test("a search is saved also where the address names none, and by no empty name", async () => {
  await open("");
  await page.locator(".line-item").first().waitFor();
  await page.getByText("Saved").click();
  const name = page.getByLabel("Name of this search");
  await name.fill("  ");
  await name.press("Enter");
  await page.getByText("A search needs a name.").waitFor();
  await name.fill("all of it");
  await name.press("Enter");
  const href = await page.getByRole("link", { name: "all of it" }).getAttribute("href");
  expect(href).toBe("#/logs?site=demo-shop");
  await name.press("Escape");
  await expect.poll(() => page.locator(".menu[open]").count()).toBe(0);
});

test.each([3_600_000, -3_600_000])(
  "a live tail begins at the server's time where the browser's is off by %i",
  async (lead) => {
    await page.addInitScript((by) => {
      const now = Date.now.bind(Date);
      Date.now = () => now() + by;
    }, lead);
    const asked = page.waitForRequest((request) => request.headers().accept === "text/event-stream");
    await open("#/logs?live=1&range=15m");
    const { from } = (await asked).postDataJSON();
    expect(Math.abs(Date.now() - 60_000 - Date.parse(from))).toBeLessThan(30_000);
  },
);

test("lines that have come live are exported, too", async () => {
  await page.route("**/api/v2/logs/lines", (route) => {
    if (route.request().headers().accept !== "text/event-stream")
      return route.fulfill({ json: [createLine(2), createLine(1)] });
    const events = [3, 5, 4].map(
      (second) => `id: x\nevent: line\ndata: ${JSON.stringify(createLine(second))}\n\n`,
    );
    return route.fulfill({ contentType: "text/event-stream", body: `retry: 1\n\n:\n\n${events.join("")}` });
  });
  await open("#/logs?live=1");
  await page.locator(".line-item").nth(4).waitFor();
  await page.getByText("Export", { exact: true }).click();
  await page.getByRole("button", { name: "Copy the loaded lines" }).click();
  await page.getByText("5 copied").waitFor();
  const rows = (await page.evaluate(() => navigator.clipboard.readText())).split("\n");
  expect(rows.map((row) => row.split("\t")[3])).toEqual(["line 5", "line 4", "line 3", "line 2", "line 1"]);
});

test("a file of a live list ends with what has come, and the histogram says up to when it counts", async () => {
  let to = "";
  const late = { ...createLine(3), timestamp: new Date(Date.now() + 600_000).toISOString() };
  await page.route("**/api/v2/logs/lines", (route) => {
    const { accept } = route.request().headers();
    if (accept === "text/csv") {
      ({ to } = route.request().postDataJSON());
      return route.fulfill({ contentType: "text/csv", body: "" });
    }
    if (accept !== "text/event-stream") return route.fulfill({ json: [createLine(1)] });
    const body = `id: x\nevent: line\ndata: ${JSON.stringify(late)}\n\n`;
    return route.fulfill({ contentType: "text/event-stream", body });
  });
  await open("#/logs?live=1");
  await page.locator(".line-item").nth(1).waitFor();
  await page.getByText(/^Counted up to /).waitFor();
  await page.getByText("Export", { exact: true }).click();
  await page.getByRole("button", { name: "All lines as CSV" }).click();
  await expect.poll(() => to).toBe(late.timestamp);
});

test("a live tail that is refused for now says why, and waits as long as the server asks", async () => {
  let asked = 0;
  await page.route("**/api/v2/logs/lines", (route) => {
    if (route.request().headers().accept !== "text/event-stream")
      return route.fulfill({ json: [createLine(1)] });
    asked += 1;
    return route.fulfill({
      status: 429,
      headers: { "Retry-After": "60" },
      json: { error: "Too many requests" },
    });
  });
  await open("#/logs?live=1");
  await page.getByText(", live: connecting again. Too many requests").waitFor();
  await page.waitForTimeout(5_000);
  expect(asked).toBe(1);
});

test("a live tail that its server has ended is gone on with from where it was", async () => {
  const ids: (string | undefined)[] = [];
  const message = "The index is closed.";
  const print = (at: number) => `id: x${at}\nevent: line\ndata: ${JSON.stringify(createLine(at))}\n\n`;
  const end = `event: end\ndata: ${JSON.stringify({ reason: "refused", error: "refused", message })}\n\n`;
  await page.route("**/api/v2/logs/lines", (route) => {
    const headers = route.request().headers();
    if (headers.accept !== "text/event-stream") return route.fulfill({ json: [createLine(1)] });
    ids.push(headers["last-event-id"]);
    const body = ids.length === 1 ? `${print(2)}${end}` : print(3);
    return route.fulfill({ contentType: "text/event-stream", body });
  });
  await open("#/logs?live=1");
  await page.getByText(`. Not live: ${message}`).waitFor();
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText("line 3").waitFor();
  expect(ids.slice(0, 2)).toEqual([undefined, "x2"]);
  expect(await page.getByRole("button", { name: "Go on" }).count()).toBe(0);
});

test("lines of one id that differ in their time all stand in a live list", async () => {
  const copies = [createLine(3), { ...createLine(4), id: createLine(3).id }];
  await page.route("**/api/v2/logs/lines", (route) => {
    if (route.request().headers().accept !== "text/event-stream")
      return route.fulfill({ json: [createLine(1)] });
    const events = copies.map((line) => `id: x\nevent: line\ndata: ${JSON.stringify(line)}\n\n`);
    return route.fulfill({ contentType: "text/event-stream", body: `retry: 1\n\n:\n\n${events.join("")}` });
  });
  await open("#/logs?live=1");
  await page.getByText("line 3").waitFor();
  expect(await page.locator(".line-message").allTextContents()).toEqual(["line 4", "line 3", "line 1"]);
});

test("the fields are gone with the lines that had them", async () => {
  await open(address());
  await page.locator(".fields summary").first().waitFor();
  await queryBox().fill("a=");
  await queryBox().press("Enter");
  await page.locator(".query-mark").waitFor();
  await expect.poll(() => page.locator(".fields").count()).toBe(0);
});

test("menus open within a narrow screen", async () => {
  await page.setViewportSize({ width: 390, height: 800 });
  const isWithin = (box: { x: number; width: number } | null) =>
    box !== null && box.x >= 0 && box.width > 100 && box.x + box.width <= 390;
  await open(address());
  await page.locator(".line-item").first().waitFor();
  for (const menu of ["Saved", "Export"]) {
    await page.getByText(menu, { exact: true }).click();
    expect(isWithin(await page.locator(".menu[open] .menu-body").boundingBox())).toBe(true);
    await page.keyboard.press("Escape");
  }
  await page.goto(`${origin}/#/metrics?name=cpu`);
  await page.getByText("Publish", { exact: true }).click();
  expect(isWithin(await page.locator(".menu[open] .menu-body").boundingBox())).toBe(true);
});

test("lines are come back to where they were left, whatever has come before them meanwhile", async () => {
  const print = (at: number) => new Date(1_770_000_000_000 + at * 1_000).toISOString();
  let newest = 2_000;
  await page.route("**/api/v2/logs/lines", (route) => {
    const { time } = route.request().postDataJSON().pagination.cursor;
    const below = time === null ? newest + 1 : (Date.parse(time) - 1_770_000_000_000) / 1_000;
    const rows = Array.from({ length: 100 }, (_, at) => below - 1 - at);
    const json = rows.map((at) => ({ ...createLine(1), id: `i/${at}`, timestamp: print(at) }));
    return route.fulfill({ json });
  });
  await open("#/logs?range=1h");
  const lines = page.locator(".line-item");
  await lines.first().waitFor();
  await scrollUntil(async () => (await lines.count()) >= 300);
  await page.evaluate(() => scrollBy(0, -1_000));
  await expect.poll(() => page.locator(".foot .spinner").count()).toBe(0);
  const isInPlace = await rememberPlace();
  newest += 130;
  await page.getByRole("link", { name: "Deploys" }).click();
  await page.locator(".figures tbody tr").first().waitFor();
  await page.goBack();
  await lines.first().waitFor();
  await isInPlace();
  // Read anew, too.
  newest += 130;
  await page.locator("#main").focus();
  const old = await page.locator("main > div").elementHandle();
  await page.keyboard.press("r");
  await expect.poll(() => old?.evaluate((one) => one.isConnected)).toBe(false);
  await isInPlace();
});

test("10,000 lines scroll without a task of more than 50 ms", async () => {
  await page.addInitScript(answerLines, 10_000);
  const load = async () => {
    await page.goto("about:blank");
    await open(address());
    await page.locator(".line-item").first().waitFor();
    await page.evaluate(async () => {
      while (document.querySelector(".status-line")?.textContent?.startsWith("10,000 ") !== true) {
        document.querySelector<HTMLElement>(".foot button")?.click();
        await new Promise((resolve) => setTimeout(resolve));
      }
    });
  };
  const scroll = () =>
    page.evaluate(async () => {
      for (let top = 0; top < document.body.scrollHeight; top += 2 * innerHeight) {
        scrollTo(0, top);
        await new Promise(requestAnimationFrame);
      }
    });
  // The first pass lays lines out that have not been, so each is over a page that is new. Other programs share the processor
  // and its caches: the best of eight counts.
  const longest: number[] = [];
  while (longest.length < 8 && !longest.some((task) => task <= 50)) {
    await load();
    longest.push(await measureLongestTask(scroll));
  }
  expect(Math.min(...longest), longest.join()).toBeLessThanOrEqual(50);
  expect(await page.locator(".line-item").count()).toBe(10_000);
});

/** Runs in the page: answers so many lines in the place of the server, as fast as the page can take them. */
function answerLines(total: number): void {
  const line = (at: number) => ({
    id: `i/${at}`,
    timestamp: new Date(1_770_000_000_000 - at * 1_000).toISOString(),
    source_id: "app",
    severity: "info",
    hostname: "",
    group: "",
    json: JSON.stringify({ a: at, b: { c: "text" } }),
    message: `line ${at} with a message of the usual length, or a little more`,
  });
  let sent = 0;
  const { fetch } = window;
  window.fetch = async (address, init) => {
    if (!String(address).endsWith("/logs/lines")) return await fetch(address, init);
    const rows = Array.from({ length: Math.min(100, total - sent) }, (_, at) => line(sent + at));
    sent += rows.length;
    return Response.json(rows);
  };
}
