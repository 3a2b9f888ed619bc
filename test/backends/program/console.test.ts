// The console's main paths on the demo, what it keeps of the token, what hostile lines can do, and whether everyone can
// use it (axe-core).
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { describe, expect, test } from "vitest";
import {
  ask,
  complaints,
  createLine,
  open,
  openContext,
  origin,
  page,
  prepareConsole,
  queryBox,
  readOpenLines,
  state,
  token,
} from "./console-harness.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

prepareConsole();

describe("the token", () => {
  test("is asked for once, kept for the tab alone, and never in an address", async () => {
    const addresses: string[] = [];
    page.on("request", (request) => addresses.push(request.url()));
    await page.goto(`${origin}/#/traces`);
    await page.getByLabel("Token").fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "not accepted" }).waitFor();
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: /#/ }).first().waitFor();
    await page.reload();
    await page.getByRole("link", { name: /#/ }).first().waitFor();
    const kept = await page.evaluate(() => ({
      session: JSON.stringify(sessionStorage),
      local: JSON.stringify(localStorage),
      cookies: document.cookie,
    }));
    expect(kept).toEqual({ session: JSON.stringify({ "readout.token": token }), local: "{}", cookies: "" });
    expect(addresses.length).toBeGreaterThan(10);
    expect(addresses.filter((address) => address.includes(token) || !address.startsWith(origin))).toEqual([]);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
    expect(complaints).toEqual([]);
  });

  test("is asked for again when it is no longer accepted", async () => {
    await open("#/logs", "expired");
    await page.getByRole("alert").filter({ hasText: "not accepted" }).waitFor();
  });
});

describe("logs", () => {
  test("a query, its lines, further pages by scrolling, and back", async () => {
    await open();
    await page.locator(".line-item").nth(99).waitFor();
    await queryBox().fill("severity=error");
    await queryBox().press("Enter");
    await expect.poll(() => page.locator(".line-item:not([data-severity=error])").count()).toBe(0);
    await page.locator(".line-item").nth(99).waitFor();
    expect(state().get("query")).toBe("severity=error");
    const before = await page.locator(".line-item").count();
    await page.mouse.wheel(0, 1e6);
    await expect.poll(() => page.locator(".line-item").count()).toBeGreaterThan(before);
    const times = await page
      .locator(".line-item")
      .evaluateAll((items) => items.map((item) => item.dataset.time ?? ""));
    expect(times).toEqual(times.toSorted().reverse());
    await page.goBack();
    await page.locator(".line-item:not([data-severity=error])").first().waitFor();
    expect(await queryBox().inputValue()).toBe("");
    await page.goForward();
    await expect.poll(() => queryBox().inputValue()).toBe("severity=error");
    expect(complaints).toEqual([]);
  });

  test("a syntax error is underlined where it is", async () => {
    await open(`#/logs?${new URLSearchParams({ query: "severity=error message:(x)" })}`);
    await page.getByText("at character 24").waitFor();
    expect(await page.locator(".query-mark").textContent()).toBe("(");
    expect(await queryBox().getAttribute("aria-invalid")).toBe("true");
    const [mark, box] = [await page.locator(".query-mark").boundingBox(), await queryBox().boundingBox()];
    // 23 characters of one width stand before it.
    const width = mark?.width ?? 0;
    expect(mark?.x).toBeCloseTo((box?.x ?? 0) + 23 * width + (await padding()), 0);
    await queryBox().press("End");
    await page.keyboard.type(" ");
    expect(await page.locator(".query-mark").count()).toBe(0);

    async function padding(): Promise<number> {
      return await queryBox().evaluate((area) => Number.parseFloat(getComputedStyle(area).paddingLeft));
    }
  });

  test.each([
    ["of a query that has been edited meanwhile", "a=", "severity=error"],
    ["of a field that the query does not spell", "a=", "a="],
  ])("an error %s is told below it, and nothing is underlined", async (name, query, edited) => {
    await page.route("**/api/v2/logs/lines", async (route) => {
      if (query !== edited) await queryBox().fill(edited);
      const legacy = { error: "legacy_log_query_syntax", message: "Legacy.", details: { field: "other" } };
      if (name.includes("field")) await route.fulfill({ status: 422, json: legacy });
      else await route.continue();
    });
    await open(`#/logs?${new URLSearchParams({ query })}`);
    await page.locator(".state-failed").waitFor();
    expect(await queryBox().inputValue()).toBe(edited);
    expect(await page.locator(".query-mark").count()).toBe(0);
  });

  test("a line opens as a tree by the keyboard, and a value filters", async () => {
    await open("#/logs?sources=nginx");
    const line = page.locator(".lines .line").first();
    await line.focus();
    await page.keyboard.press("Enter");
    const only = page.getByRole("button", { name: /^Only where status is (\d+)$/ });
    const status = /\d+/.exec((await only.getAttribute("aria-label")) ?? "")?.[0];
    await only.focus();
    await page.keyboard.press("Enter");
    await expect.poll(() => state().get("query")).toBe(`status=${status}`);
    expect(state().get("sources")).toBe("nginx");
    await page.locator(".lines .line").first().click();
    const shown = page.locator(".tree .leaf", { hasText: "status" }).first();
    expect(await shown.textContent()).toContain(`status${status}`);
  });

  test("a line closes by the keyboard, and a text of it can be selected without opening it", async () => {
    await open("#/logs?sources=nginx&range=24h");
    const line = page.locator(".lines .line").nth(1);
    await line.focus();
    await page.keyboard.press("Space");
    await page.locator(".opened .tree").first().waitFor();
    await page.keyboard.press("Space");
    await page.locator(".opened").waitFor({ state: "hidden" });
    const box = await page.locator(".line-message").nth(2).boundingBox();
    if (box === null) throw new Error("The message is not shown.");
    const y = box.y + box.height / 2;
    await page.mouse.move(box.x + 4, y);
    await page.mouse.down();
    await page.mouse.move(box.x + 80, y, { steps: 4 });
    await page.mouse.up();
    expect(await page.evaluate(() => String(getSelection()))).not.toBe("");
    expect(await readOpenLines()).toEqual([]);
    await page.locator(".line time").nth(2).click();
    expect(await readOpenLines()).toEqual([2]);
  });

  test("the line that is open is in the address", async () => {
    await open(`#/logs?range=2020-01-01T00:00:00Z/${new Date(Date.now() - 60_000).toISOString()}`);
    await page.locator(".lines .line").nth(3).click();
    await expect.poll(() => state().get("line")).toBeTruthy();
    await page.reload();
    await page.locator(".line-item").nth(3).locator(".tree").first().waitFor();
    expect(await readOpenLines()).toEqual([3]);
    await page.locator(".lines .line").nth(3).click();
    await expect.poll(() => state().get("line")).toBeNull();
    expect(complaints).toEqual([]);
  });

  test("what is typed is searched for with whatever else is changed, and the focus stays in reach", async () => {
    await open();
    await queryBox().fill("severity=warn");
    await page.getByRole("button", { name: "worker", exact: true }).click();
    await expect
      .poll(() => Object.fromEntries(state()))
      .toMatchObject({ query: "severity=warn", sources: "worker" });
    await page.locator(".lines .line").first().click();
    await page.getByRole("button", { name: /^Only where hostname is/ }).press("Enter");
    await expect.poll(() => state().get("query")).toMatch(/^severity=warn hostname=/);
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("main");
  });

  test("a line leads to its trace, and the trace to its lines", async () => {
    await open(`#/logs?${new URLSearchParams({ query: "severity=error trace_id:a", range: "24h" })}`);
    // The newest line's request may not have ended yet.
    await page.locator(".lines .line").nth(20).click();
    await page.getByRole("link", { name: "Open its trace" }).click();
    await page.locator(".span-item").first().waitFor();
    expect(page.url()).toContain("#/trace?");
    await page.locator(".section .line-item[data-severity=error]").first().waitFor();
    expect(complaints).toEqual([]);
  });

  test("hostile lines are text, in their own direction, with nothing unseen", async () => {
    const hostile = `<img src=x onerror="window.owned=1"> \u202egnp.exe\u202c <b>\u0007\u001b[31m</b>`;
    const line = {
      id: "i/1",
      timestamp: "2026-01-31T12:00:00.000Z",
      source_id: "<i>a</i>",
      severity: "error",
      message: hostile,
      hostname: hostile,
      group: "",
      attributes: {},
      json: JSON.stringify({
        [hostile]: hostile,
        nested: { html: ["<script>window.owned=2</script>"] },
        big: 1,
      }),
    };
    await page.route("**/api/v2/logs/lines", (route) => route.fulfill({ json: [line] }));
    await open();
    const shown = page.locator(".line-message");
    await shown.waitFor();
    await page.locator(".lines .line").click();
    await page.locator(".opened .tree").first().waitFor();
    expect(await shown.textContent()).toBe(
      `<img src=x onerror="window.owned=1"> U+202Egnp.exeU+202C <b>U+0007\\e[31m</b>`,
    );
    expect(await page.locator("main img, main b, main i, main script").count()).toBe(0);
    expect(await page.evaluate(() => Reflect.get(window, "owned"))).toBeUndefined();
    // The filter is the value itself, not what is shown of it.
    await page.getByRole("button", { name: /^Only where message is/ }).click();
    await expect.poll(() => state().get("query")).toBe(`message="${hostile.replaceAll('"', '\\"')}"`);
    expect(complaints).toEqual([]);
  });

  test("a live tail shows new lines on top; a server without one is said to have none", async () => {
    let isLive = true;
    const accepted: string[] = [];
    await page.route("**/api/v2/logs/lines", (route) => {
      const accept = route.request().headers().accept ?? "";
      accepted.push(accept);
      if (!isLive || accept !== "text/event-stream")
        return route.fulfill({ json: [createLine(2), createLine(1)] });
      const events = [2, 3, 5, 4].map(
        (second) => `id: x${second}\nevent: line\ndata: ${JSON.stringify(createLine(second))}\n\n`,
      );
      return route.fulfill({ contentType: "text/event-stream", body: `retry: 1\n\n:\n\n${events.join("")}` });
    });
    const messages = () => page.locator(".line-message").allTextContents();
    await open("#/logs?live=1");
    await expect.poll(messages).toEqual(["line 5", "line 4", "line 3", "line 2", "line 1"]);
    expect(await page.getByRole("button", { name: "Live" }).getAttribute("aria-pressed")).toBe("true");
    isLive = false;
    await page.getByRole("button", { name: "Live" }).click();
    await expect.poll(messages).toEqual(["line 2", "line 1"]);
    await page.getByRole("button", { name: "Live" }).click();
    await page.getByText("Live tail is not available").waitFor();
    expect(await messages()).toEqual(["line 2", "line 1"]);
    expect(accepted).toContain("text/event-stream");
    expect(complaints).toEqual([]);
  });

  test("a request that another has superseded is given up", async () => {
    const held: string[] = [];
    await page.route("**/api/v2/logs/lines", async (route) => {
      if (!route.request().postData()?.includes("slow")) return route.continue();
      held.push("held");
    });
    const given = page.waitForEvent(
      "requestfailed",
      (request) => request.postData()?.includes("slow") === true,
    );
    await open("#/logs?query=slow");
    await expect.poll(() => held.length).toBe(1);
    await queryBox().fill("severity=info");
    await queryBox().press("Enter");
    expect((await given).failure()?.errorText).toBe("net::ERR_ABORTED");
    await page.locator(".line-item").first().waitFor();
    expect(complaints).toEqual([]);
  });

  test("failures are told, and tried again", async () => {
    let isDown = true;
    await page.route("**/api/v2/logs/lines", (route) =>
      isDown ? route.fulfill({ status: 500, json: { error: "A source does not answer" } }) : route.continue(),
    );
    await open();
    await page.getByRole("alert").filter({ hasText: "A source does not answer" }).waitFor();
    isDown = false;
    await page.getByRole("button", { name: "Try again" }).click();
    await page.locator(".line-item").first().waitFor();
  });

  test("what is refused for good says why, once, and is not tried again", async () => {
    await open("#/traces?range=2026-01-31T13:00:00Z/2026-01-31T12:00:00Z");
    const alert = page.getByRole("alert").filter({ hasText: "could not be answered" });
    await alert.waitFor();
    expect((await alert.innerText()).match(/is later than/g)).toEqual(["is later than"]);
    expect(await page.getByRole("button", { name: "Try again" }).count()).toBe(0);
  });

  test("a server whose GraphQL is not there has lines, and says so where it is asked", async () => {
    const told = "GraphQL is not available: its schema could not be loaded";
    await page.route("**/graphql", (route) =>
      route.fulfill({ status: 500, json: { errors: [{ message: told, extensions: { status: 500 } }] } }),
    );
    await open();
    await page.locator(".line-item").first().waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
    await page.goto(`${origin}/#/errors`);
    await page.getByRole("alert").filter({ hasText: told }).waitFor();
  });
});

describe("traces", () => {
  test("filters by a tag, and shows an N+1 and an error in the waterfall", async () => {
    await open("#/traces");
    await page.getByRole("button", { name: "Only plan: pro" }).first().click();
    await expect.poll(() => state().get("query")).toBe("tag.plan=pro");
    await page.getByRole("button", { name: "Only plan: pro" }).first().waitFor();
    expect(await page.getByRole("button", { name: "Only plan: free" }).count()).toBe(0);

    const listing = { site_ids: ["demo-shop"], pagination: { per_page: 300, order: "DESC" } };
    const npo = (await ask("tracing/traces/performance", listing)).find((row) => row.has_npo === true);
    await page.goto(`${origin}/#/trace?id=${npo?.trace_id}`);
    await page
      .getByText(/^N\+1: \d+ ×$/)
      .first()
      .waitFor();

    const [error] = await ask("tracing/traces/errors", { ...listing, pagination: { per_page: 1 } });
    await page.goto(`${origin}/#/traces?kind=errors`);
    await page.locator(`a[href*="${error?.trace_id}"]`).first().click();
    await page.getByText("exception.type").waitFor();
    expect(await page.locator(".span-item[data-failed]").count()).toBeGreaterThan(0);

    await page.locator(".waterfall details:not([open]) > summary").first().click();
    await expect.poll(() => state().get("open")).toMatch(/^[0-9a-f]{16}$/);
    await page.reload();
    await page.locator(".waterfall details[open] .opened").first().waitFor();
    expect(complaints).toEqual([]);
  });
});

describe("metrics", () => {
  test("a name, its tags and fields, a chart, and the same values as a table", async () => {
    await open("#/metrics");
    await page.getByRole("button", { name: "transaction_duration" }).click();
    await page.locator(".chart canvas").waitFor();
    await page.getByRole("button", { name: "each action" }).click();
    await page.getByRole("rowheader", { name: "action=CheckoutController#create" }).waitFor();
    await page.getByLabel("Field").selectOption("count");
    await page.getByLabel("Resolution").selectOption("FIFTEEN_MINUTELY");
    await expect
      .poll(() => Object.fromEntries(state()))
      .toEqual({
        site: "demo-shop",
        name: "transaction_duration",
        field: "count",
        tags: "action=*",
        resolution: "FIFTEEN_MINUTELY",
      });
    await page.getByText("every 15 minutes").waitFor();
    await page.getByText("Values as a table").click();
    const times = page.getByRole("region", { name: "Values" }).getByRole("rowheader");
    await expect.poll(() => times.count()).toBeGreaterThan(3);
    const isDrawn = await page.locator(".chart canvas").evaluate((canvas) => {
      if (!(canvas instanceof HTMLCanvasElement)) return false;
      const pixels = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
      return new Set(pixels).size > 8;
    });
    expect(isDrawn).toBe(true);
    expect(complaints).toEqual([]);
  });

  test("names that every object has, and ones longer than the screen, are names as all others", async () => {
    const long = "x".repeat(300);
    const series = {
      id: "a",
      name: "cpu",
      field: "gauge",
      min: 1,
      max: 2,
      data: [{ timestamp: "2026-01-31T12:00:00.000Z", value: 2 }],
    };
    await page.route("**/api/v2/metrics/names/*", (route) => route.fulfill({ json: [long, "cpu"] }));
    await page.route("**/api/v2/metrics/type_and_tags/*/*", (route) =>
      route.fulfill({ json: { metric_type: "gauge", available_tags: [["__proto__", "constructor"]] } }),
    );
    await page.route("**/api/v2/metrics/timeseries", (route) => {
      const [{ tags }] = route.request().postDataJSON().select;
      return route.fulfill({ json: { resolution: "HOURLY", series: [{ ...series, tags }] } });
    });
    await open("#/metrics");
    await page.getByRole("button", { name: long }).waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
    await page.getByRole("button", { name: "cpu" }).click();
    await page.getByRole("button", { name: "each constructor" }).click();
    await page.getByRole("rowheader", { name: "constructor=*" }).waitFor();
    await page.getByRole("button", { name: "each __proto__" }).click();
    await page.getByRole("rowheader", { name: "__proto__=*" }).waitFor();
    expect(complaints).toEqual([]);
  });
});

describe("the cluster", () => {
  test("nodes, and pods that fail before those that run", async () => {
    await open("#/kubernetes");
    await page.getByRole("rowheader", { name: "demo-node-1" }).waitFor();
    const states = await page
      .getByRole("region", { name: "Pods" })
      .locator("tbody td:nth-child(2)")
      .allTextContents();
    expect(states.indexOf("Failed")).toBe(0);
    expect(states.lastIndexOf("Failed")).toBeLessThan(states.indexOf("Running"));
    await page.getByLabel("State").selectOption("Failed");
    await expect.poll(() => page.locator(".section").getByText("Running", { exact: true }).count()).toBe(0);
    await page.locator(".expander").first().click();
    await page.getByRole("link", { name: "Its log lines" }).waitFor();
    expect(state().get("pod")).toContain("/");
    await page.reload();
    await page.getByRole("link", { name: "Its log lines" }).waitFor();
    await page.locator(".expander").first().click();
    await expect.poll(() => state().has("pod")).toBe(false);
    expect(complaints).toEqual([]);
  });
});

describe("elsewhere", () => {
  test("copies a curl line without the token, which gives the same rows", async () => {
    await open(`#/logs?${new URLSearchParams({ query: "severity=error", range: "15m" })}`);
    await page.locator(".line-item").first().waitFor();
    await page.getByRole("button", { name: "Copy as curl" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const line = await page.evaluate(() => navigator.clipboard.readText());
    expect(line).not.toContain(token);
    const child = spawn("sh", ["-c", line], {
      env: { ...process.env, TOKEN: token },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let out = "";
    for await (const piece of child.stdout) out += piece;
    const rows: readonly { severity: string; timestamp: string }[] = JSON.parse(out);
    const times = await page
      .locator(".line-item")
      .evaluateAll((items) => items.map((item) => item.dataset.time));
    expect(rows.length).toBeGreaterThan(0);
    // What the demo has made since then is newer.
    expect(times).toEqual(expect.arrayContaining(rows.slice(-5).map(({ timestamp }) => timestamp)));
  });

  test("GraphiQL has the query, and the token only in its headers", { timeout: 120_000 }, async () => {
    await open("#/traces");
    await page.getByRole("link", { name: /#/ }).first().waitFor();
    const [editor] = await Promise.all([
      page.context().waitForEvent("page"),
      page.getByRole("link", { name: "Open in GraphiQL" }).click(),
    ]);
    editor.setDefaultTimeout(60_000);
    await editor
      .locator(".graphiql-query-editor .view-line", { hasText: "tracing_traces_performance" })
      .waitFor();
    await editor.locator(".graphiql-execute-button").click();
    await editor.locator(".graphiql-response", { hasText: "trace_id" }).waitFor();
    expect(editor.url()).not.toContain(token);
    expect(await editor.evaluate(() => JSON.stringify(localStorage))).not.toContain(token);
  });

  test("GraphiQL opens on its first query, also when it is opened again", { timeout: 120_000 }, async () => {
    const lines = page.locator(".graphiql-query-editor .view-line");
    for (const _ of ["the first visit", "another", "and another"]) {
      await page.goto(`${origin}/graphql`);
      await lines.filter({ hasText: "sites" }).waitFor();
      expect(await page.locator(".graphiql-tab").count()).toBe(1);
    }
    // What is said there is not hidden behind the buttons.
    const buttons = await page.locator(".graphiql-toolbar").boundingBox();
    const ends = await lines
      .locator("> span")
      .evaluateAll((texts) => texts.map((text) => text.getBoundingClientRect().right));
    expect(Math.max(...ends)).toBeLessThan(buttons?.x ?? 0);
  });
});

/** Runs in the page. */
async function findIssues(): Promise<readonly string[]> {
  const { violations } = await Reflect.get(window, "axe").run(document);
  return violations.map((one: { id: string; impact: string; nodes: readonly { html: string }[] }) => {
    const places = one.nodes.slice(0, 3).map(({ html }) => html.slice(0, 160));
    return `${one.impact}: ${one.id}: ${places.join(" | ")}`;
  });
}

describe("everyone", () => {
  const views: readonly (readonly [string, string, string])[] = [
    ["the question for the token", "", "form.token"],
    ["logs with marked deploys", "#/logs", ".histogram-mark"],
    ["a query with an error", "#/logs?query=a%3D", ".query-mark"],
    ["no lines", "#/logs?query=nothing_here", ".state-title"],
    ["traces", "#/traces", ".traces tbody tr"],
    ["errors", "#/traces?kind=errors", ".traces tbody tr"],
    ["a trace", "#/trace", ".span-item"],
    ["metrics", "#/metrics", ".names li"],
    ["a metric with marked deploys", "#/metrics?name=cpu&tags=hostname%3D*", "ul.unseen li"],
    ["the cluster", "#/kubernetes", ".cluster tbody tr"],
    ["errors together", "#/errors", ".figures .sparkline"],
    ["actions", "#/actions", ".figures .sparkline"],
    ["slow events", "#/slow", ".figures .sparkline"],
    ["the map", "#/map", ".map-node"],
    ["deploys", "#/deploys", ".figures tbody tr"],
    ["a visual with marked deploys", "#/visuals?id=9Ubquyg0qqEEfpH6Xefmrg", "ul.unseen li"],
    ["a schedule", "#/checkins?schedule=0+9+*+*+MON", ".runs li"],
  ];

  test.each(views)(
    "%s: no issue for axe, light or dark, and no sideways scrolling",
    async (_, address, shown) => {
      // The page's own policy would keep the tester out, too.
      await openContext({ bypassCSP: true, reducedMotion: "reduce" });
      const [error] = await ask("tracing/traces/errors", {
        site_ids: ["demo-shop"],
        pagination: { per_page: 1 },
      });
      const named = address === "#/trace" ? `#/trace?id=${error?.trace_id}&span=${error?.span_id}` : address;
      if (address === "") await page.goto(origin);
      else await open(named);
      await page.locator(shown).first().waitFor();
      // What opens is looked at open.
      await page.evaluate(() => {
        for (const details of [...document.querySelectorAll("details")].slice(0, 3)) details.open = true;
        for (const row of [...document.querySelectorAll<HTMLElement>(".line-item > .line")].slice(0, 3))
          row.click();
        document.querySelector<HTMLElement>(".expander")?.click();
      });
      await page.evaluate(axe);
      for (const [colorScheme, width] of [["light", 400] as const, ["dark", 1_400] as const]) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 900 });
        expect(await page.evaluate(findIssues), `${colorScheme}, ${width}`).toEqual([]);
      }
      for (const width of [400, 900, 1_400]) {
        await page.setViewportSize({ width, height: 900 });
        const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(beyond, String(width)).toBeLessThanOrEqual(0);
      }
    },
  );

  test("the theme can be chosen, and stays", async () => {
    await open();
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.emulateMedia({ colorScheme: "light" });
    const light = await ground();
    const themes = page.getByRole("button", { name: /^Theme/ });
    await themes.click();
    expect(await ground()).toBe(light);
    await themes.click();
    const dark = await ground();
    expect(dark).not.toBe(light);
    await page.reload();
    await themes.waitFor();
    expect(await ground()).toBe(dark);
  });

  test("the API's page has the theme that was chosen, else the system's", async () => {
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    await page.emulateMedia({ colorScheme: "light" });
    await page.goto(`${origin}/docs`);
    await page.locator(".opblock").first().waitFor();
    const light = await ground();
    await page.emulateMedia({ colorScheme: "dark" });
    await expect.poll(ground).not.toBe(light);
    await page.evaluate(() => localStorage.setItem("readout.theme", "light"));
    await page.reload();
    expect(await ground()).toBe(light);
    expect(complaints).toEqual([]);
  });
});
