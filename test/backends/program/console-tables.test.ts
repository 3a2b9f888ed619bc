// The tables of figures, the map and the pages beside them on the demo: what they show is what the API answers.
import { describe, expect, test } from "vitest";
import { ask, complaints, open, origin, page, prepareConsole, state, token } from "./console-harness.ts";

prepareConsole();

/** A range that is over, so that nothing is added to it. */
const range = {
  from: new Date(Date.now() - 3_600_000).toISOString(),
  to: new Date(Date.now() - 60_000).toISOString(),
};
const address = (view: string, more: Readonly<Record<string, string>> = {}) =>
  `#/${view}?${new URLSearchParams({ ...more, range: `${range.from}/${range.to}` })}`;
const body = { site_id: "demo-shop", ...range };
const rows = () => page.locator(".figures tbody tr");
const readRows = () =>
  rows().evaluateAll((all) =>
    all.map((row) => [...row.children].map((cell) => cell.textContent?.trim() ?? "")),
  );
/** The counts of each row's sparkline, added up. */
const readSparklines = () =>
  page.locator(".figures .sparkline").evaluateAll((all) =>
    all.map((one) =>
      (one.getAttribute("aria-label") ?? "")
        .replace(/^Over time: /, "")
        .split(", ")
        .reduce((sum, count) => sum + Number(count.replaceAll(",", "")), 0),
    ),
  );

describe("actions", () => {
  test("have the figures of the API, and their pieces add up to them", async () => {
    await open(address("actions"));
    const found = (await ask("tracing/actions", body)) as readonly {
      readonly action: string;
      readonly throughput: number;
    }[];
    const expected = found.toSorted((a, b) => b.throughput - a.throughput).map((row) => row.throughput);
    await page
      .locator(".sparkline")
      .nth(found.length - 1)
      .waitFor();
    const shown = await readRows();
    expect(shown.map((row) => Number(row[2]?.replaceAll(",", "")))).toEqual(expected);
    expect(await readSparklines()).toEqual(expected);
    await page.getByRole("button", { name: "Action", exact: true }).click();
    await expect.poll(() => state().get("sort")).toBe("action");
    await expect
      .poll(async () => (await readRows()).map((row) => row[0]))
      .toEqual(shown.map((row) => row[0] ?? "").toSorted());
    expect(complaints).toEqual([]);
  });

  test("have their figures where their pieces cannot be counted, and say why", async () => {
    let asked = 0;
    await page.route("**/tracing/actions", (route) => {
      asked += 1;
      const outage = { error: "source_unavailable", message: "the source is away", details: {} };
      return asked === 1 ? route.continue() : route.fulfill({ status: 503, json: outage });
    });
    await open(address("actions"));
    const told = page.locator(".figures .spark").first();
    await told.getByText("not counted").waitFor();
    expect(await told.getByTitle("the source is away").count()).toBe(1);
    expect(await page.locator(".figures .spark").allTextContents()).toEqual(
      (await readRows()).map(() => "not counted"),
    );
    expect((await readRows()).every((row) => Number(row[2]?.replaceAll(",", "")) > 0)).toBe(true);
  });

  test("lead to their traces", async () => {
    await open(address("actions"));
    await page.getByRole("link", { name: "CheckoutController#create" }).click();
    await page.locator(".traces tbody tr").first().waitFor();
    expect(Object.fromEntries(state())).toMatchObject({
      namespace: "web",
      action: "CheckoutController#create",
    });
  });
});

test("slow events have the figures of the API, and lead to traces that have them", async () => {
  await open(address("slow"));
  const found = (await ask("tracing/slow_events", body)) as readonly { readonly count: number }[];
  await page
    .locator(".sparkline")
    .nth(found.length - 1)
    .waitFor();
  expect((await readSparklines()).toSorted()).toEqual(found.map(({ count }) => count).toSorted());
  await page.locator(".figures summary").first().click();
  await page.locator(".event-actions a").first().click();
  await page.locator(".span-item").first().waitFor();
  expect(complaints).toEqual([]);
});

test("errors have type, message and count, and lead to their traces", async () => {
  await open(address("errors"));
  await page.locator(".sparkline").first().waitFor();
  const shown = await readRows();
  const counts = shown.map((row) => Number(row[2]));
  expect(await readSparklines()).toEqual(counts);
  const all = await ask("tracing/traces/errors", {
    site_ids: ["demo-shop"],
    ...range,
    pagination: { per_page: 10_000, order: "DESC", cursor: "Time" },
  });
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(all.length);
  await page.getByRole("link", { name: "PaymentError" }).click();
  await page.getByText("PaymentError: card declined").first().waitFor();
  expect(await page.locator(".traces tbody tr").count()).toBe(
    counts[shown.findIndex((row) => row[0]?.startsWith("PaymentError"))],
  );
  expect(complaints).toEqual([]);
});

describe("a table of more rows than are read", () => {
  const many = <T>(make: (at: number) => T) => Array.from({ length: 1_000 }, (_, at) => make(at));
  const told = () => page.locator("main .status-line").textContent();

  test("of errors tells how many there are, and of which pieces it knows nothing", async () => {
    const time = "2026-01-31T12:00:00.000Z";
    const errors = many((at) => ({
      id: `e${at}`,
      exceptionName: `Error${at}`,
      exceptionMessage: "",
      namespace: "web",
      actionNames: [],
      count: 1,
      createdAt: time,
      lastOccurredAt: time,
    }));
    await page.route("**/graphql", (route) => {
      const { query, variables } = route.request().postDataJSON();
      const isPiece = query.includes("rows { id count }");
      const other = { ...errors[0], id: "other" };
      const page =
        variables.limit === 0 ? { total: 1_580 } : { rows: isPiece ? [...errors.slice(1), other] : errors };
      return route.fulfill({ json: { data: { app: { paginatedExceptionIncidents: page } } } });
    });
    await open(address("errors"));
    await expect.poll(told).toMatch(/^1,000 of 1,580 errors, those that happened last, /);
    await expect.poll(() => page.locator(".figures .sparkline").count()).toBe(999);
    expect((await rows().first().locator(".spark").textContent()) ?? "").toBe("–");
  });

  test("of slow events and of deploys tells that there may be more", async () => {
    const time = "2026-01-31T12:00:00.000Z";
    const event = {
      service: "a",
      span_kind: "client",
      span_name: "GET",
      statement: "",
      count: 1,
      mean: 1,
      impact: 1,
    };
    await page.route("**/tracing/slow_events", (route) =>
      route.fulfill({ json: many((at) => ({ ...event, digest: `d${at}` })) }),
    );
    const deploy = { createdAt: time, lastOccurredAt: time, liveFor: 1, exceptionCount: 0, exceptionRate: 0 };
    const deployMarkers = many((at) => ({ ...deploy, revision: `r${at}` }));
    await page.route("**/graphql", (route) => route.fulfill({ json: { data: { app: { deployMarkers } } } }));
    await open(address("slow"));
    await expect.poll(told).toMatch(/^1,000 slow events, those of greatest impact, there may be more, /);
    await page.getByRole("link", { name: "Deploys" }).click();
    await expect.poll(told).toMatch(/^1,000 deploys, the newest, there may be more, /);
  });
});

describe("j and k", () => {
  const focused = () =>
    page.evaluate(() =>
      [...document.querySelectorAll("tbody tr")].findIndex((row) => row.contains(document.activeElement)),
    );

  test.each(["slow", "kubernetes", "actions", "traces"])("go from row to row: %s", async (view) => {
    await open(address(view));
    await page.locator("main tbody tr").nth(2).waitFor();
    const pods =
      view === "kubernetes"
        ? await page.getByRole("region", { name: "Nodes" }).locator("tbody tr").count()
        : 0;
    await page.locator("#main").focus();
    for (const at of [0, 1, 2]) {
      await page.keyboard.press("j");
      expect(await focused()).toBe(pods + at);
    }
    await page.keyboard.press("k");
    expect(await focused()).toBe(pods + 1);
  });
});

describe("a cluster of which one request fails", () => {
  const outage = { error: "source_unavailable", message: "the source is away", details: {} };
  const fail = (path: string) =>
    page.route(`**/api/v2/kubernetes/${path}`, (route) => route.fulfill({ status: 503, json: outage }));
  const nodes = () => page.getByRole("region", { name: "Nodes" }).locator("tbody tr");
  const pods = () => page.getByRole("region", { name: "Pods" }).locator("tbody tr");

  test.each([
    { path: "nodes", what: "The nodes are not shown. the source is away", there: pods },
    { path: "pods", what: "CPU and memory of the pods are not shown. the source is away", there: pods },
    { path: "pods/overview", what: "the source is away", there: nodes },
  ])("shows what is there without $path, says what is missing, and is tried again", async (one) => {
    await fail(one.path);
    await open(address("kubernetes"));
    await one.there().nth(1).waitFor();
    await page.locator("main").getByText(one.what).waitFor();
    await page.unroute(`**/api/v2/kubernetes/${one.path}`);
    await page.getByRole("button", { name: "Try again" }).click();
    for (const rows of [nodes, pods]) await rows().nth(1).waitFor();
    await expect.poll(() => page.locator("main").getByText(one.what).count()).toBe(0);
  });

  test("says it once where all fail", async () => {
    for (const path of ["nodes", "pods", "pods/overview"]) await fail(path);
    await open(address("kubernetes"));
    await page.getByRole("alert").waitFor();
    expect(await page.getByText("the source is away").count()).toBe(1);
  });
});

test("the traces of one error lead back to those of all", async () => {
  await open(address("errors"));
  await page.getByRole("link", { name: "PaymentError" }).click();
  await page.getByRole("button", { name: "All errors again" }).click();
  await expect.poll(() => state().has("digest")).toBe(false);
  await page.locator(".traces tbody tr").first().waitFor();
  expect(await page.getByText("Only one error").isVisible()).toBe(false);
});

test("the map spells out what nobody would see", async () => {
  const edge = { service: "pay\u202egnp", count: 1, error_count: 0, mean: 1, p_90: 1, p_95: 1 };
  await page.route("**/tracing/site_edges", (route) =>
    route.fulfill({ json: { upstream: [], internal: [], downstream: [edge] } }),
  );
  await open(address("map"));
  await page.locator(".map-node").nth(1).waitFor();
  const drawn = (await page.locator(".map-drawing").allTextContents()).join();
  expect(drawn).toContain("payU+202Egnp");
  expect(drawn).not.toContain("\u202e");
});

test("the map and its table have the edges of the API", async () => {
  await open(address("map"));
  const answer = await fetch(`${origin}/api/v2/tracing/site_edges`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  const { upstream, internal, downstream } = await answer.json();
  const all: readonly { service: string; count: number }[] = [...upstream, ...internal, ...downstream];
  await page.locator(".map-node").nth(all.length).waitFor();
  const shown = await readRows();
  expect(shown.map((row) => [row[0], Number(row[2]?.replaceAll(",", ""))])).toEqual(
    all.map(({ service, count }) => [service, count]),
  );
  const drawn = await page.locator(".map-node title").allTextContents();
  expect(drawn).toEqual(["demo-shop", ...all.map(({ service }) => service)]);
  expect(complaints).toEqual([]);
});

test("deploys lead to the traces of their revision", async () => {
  await open(address("deploys"));
  await page.locator(".figures tbody a").first().click();
  await page.locator(".traces tbody tr").first().waitFor();
  expect(state().get("query")).toMatch(/^revision=/);
});

test("a published visual is shown by its id, and an unknown one is not found", async () => {
  await open("#/visuals?id=9Ubquyg0qqEEfpH6Xefmrg");
  await page.getByRole("heading", { name: "Requests per minute" }).waitFor();
  await page.locator(".chart canvas").waitFor();
  // By the metric, and not by the id that the API has for the series.
  expect(await page.locator("button.series").allTextContents()).toEqual(["site_throughput"]);
  await page.getByLabel("Id of a published visual").fill("AAAAAAAAAAAAAAAAAAAAAA");
  await page.keyboard.press("Enter");
  await page.locator(".state-title", { hasText: "Not found" }).waitFor();
});

test("a schedule is told in words, and a wrong one is explained", async () => {
  await open("#/checkins");
  await page.getByLabel("Schedule").fill("0 9 * * MON");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /At 09:00/ }).waitFor();
  expect(await page.locator(".runs li").count()).toBe(5);
  await page.getByLabel("Schedule").fill("0 0 30 2 *");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
});

describe("a chart of metrics", () => {
  test("shows several metrics, and one series alone and all again", async () => {
    await open(address("metrics", { name: "cpu", tags: "hostname=*" }));
    await page.getByLabel("With").fill("memory");
    await page.getByLabel("With").press("Enter");
    await expect.poll(() => state().get("also")).toBe("memory");
    const series = page.getByRole("button", { name: /^(cpu|memory)/ });
    await page.getByRole("region", { name: "Series" }).getByText("memory").waitFor();
    await page.getByRole("button", { name: /^Only memory/ }).click();
    const pressed = () =>
      page.locator("button.series").evaluateAll((all) => all.map((one) => one.getAttribute("aria-pressed")));
    await expect.poll(async () => (await pressed()).filter((one) => one === "true").length).toBe(1);
    await page.getByRole("button", { name: /^Only memory/ }).click();
    await expect.poll(async () => (await pressed()).includes("false")).toBe(false);
    expect(await series.count()).toBeGreaterThan(1);
    await page.getByLabel("Drawn as").selectOption("stacked");
    await page.getByLabel("Scale").selectOption("log");
    await expect.poll(() => Object.fromEntries(state())).toMatchObject({ style: "stacked", scale: "log" });
    await page.locator(".chart canvas").waitFor();
    expect(complaints).toEqual([]);
  });

  test("is drawn without a metric that the site does not have, and names that one", async () => {
    await open(address("metrics", { name: "cpu", also: "memroy" }));
    await page.locator(".chart canvas").waitFor();
    await page.getByText("This site has no metric memroy").waitFor();
    await page.getByRole("button", { name: "Without memroy" }).click();
    await expect.poll(() => state().has("also")).toBe(false);
  });

  test("is published as a file", async () => {
    await open(address("metrics", { name: "cpu" }));
    await page.getByText("Publish").click();
    await expect
      .poll(() => page.locator(".menu-body pre").textContent())
      .toMatch(/^id: "[\w-]{22}"\ntitle: "cpu"\ntype: line\nsite: "demo-shop"\nfrom: /);
  });
});
