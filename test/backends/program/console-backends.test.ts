// Each view of the console over real servers: sign-in, what is shown against what the API answers, brushes, filters, reading
// anew, back and forward, sites with nothing, sources that are down, and as much as a view has to bear.
import { describe, expect, test } from "vitest";
import { startPrometheus } from "../../servers/prometheus.ts";
import { chosen, named, namedPrometheus } from "../selected-servers.ts";
import {
  ask,
  complaints,
  open,
  origin,
  page,
  prepareConsole,
  queryBox,
  state,
  token,
} from "./console-harness.ts";
import {
  largeTrace,
  lineCount,
  printMetrics,
  range,
  seriesCount,
  serveLinesAndSpans,
  serveMetrics,
  serviceCount,
  spanCount,
  valueAt,
  visual,
} from "./console-site.ts";

/** The name of a view, what it shows when it is shown, and parameters of its address. */
type View = readonly [name: string, shown: string, more: Readonly<Record<string, string>>];

const elasticViews: readonly View[] = [
  ["logs", ".line-item", {}],
  ["traces", ".traces tbody tr", {}],
  ["trace", ".span-item", { id: largeTrace }],
  ["errors", ".figures .sparkline", {}],
  ["actions", ".figures .sparkline", {}],
  ["slow", ".figures .sparkline", {}],
  ["map", ".map-node", {}],
  ["deploys", ".figures tbody tr", {}],
];
const metricViews: readonly View[] = [
  ["metrics", ".chart canvas", { name: "queue_depth", tags: "worker=*" }],
  ["kubernetes", ".cluster tbody tr", {}],
  ["visuals", ".chart canvas", { id: visual }],
  ["checkins", ".runs li", { schedule: "0 9 * * MON" }],
];

const address = (view: string, more: Readonly<Record<string, string>> = {}) =>
  `#/${view}?${new URLSearchParams({ site: "shop", ...more, range: `${range.from}/${range.to}` })}`;
const body = { site_id: "shop", ...range };
const plain = (value: number) => value.toLocaleString("en");
const told = () => page.locator("main .status-line").first();

interface Counted {
  readonly total: number;
  readonly groups: readonly { readonly value: string; readonly count: number }[];
}
type Edges = Readonly<
  Record<
    "upstream" | "internal" | "downstream",
    readonly { readonly service: string; readonly count: number }[]
  >
>;

/** An answer that is no list. */
async function post(path: string, request: object): Promise<Counted & Edges> {
  const headers = { authorization: `Bearer ${token}` };
  const answer = await fetch(`${origin}/api/v2/${path}`, {
    method: "POST",
    headers,
    body: JSON.stringify(request),
  });
  expect(answer.status, path).toBe(200);
  return await answer.json();
}

/** Presses the mouse at one part of an element's width, and lets it go at another one. */
async function drag(place: string, from: number, to: number): Promise<void> {
  const box = await page.locator(place).boundingBox();
  if (box === null) throw new Error(`${place} is not in sight`);
  const y = box.y + Math.min(20, box.height / 2);
  await page.mouse.move(box.x + box.width * from, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * to, y, { steps: 4 });
  await page.mouse.up();
}

/** What holds for every view. */
function testEachView(views: readonly View[]): void {
  test.each(views)("%s: signs in, is read anew, and is come back to", async (view, shown, more) => {
    await page.goto(`${origin}/${address(view, more)}`);
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await page.locator(shown).first().waitFor();
    const hash = new URL(page.url()).hash;
    const before = await page.locator(shown).count();
    const old = await page.locator("main > div").elementHandle();
    await page.locator("#main").focus();
    await page.keyboard.press("r");
    await expect.poll(() => old?.evaluate((one) => one.isConnected)).toBe(false);
    await expect.poll(() => page.locator(shown).count()).toBe(before);
    const other = view === "checkins" ? "Visuals" : "Check-ins";
    await page.getByRole("link", { name: other }).click();
    await expect.poll(() => page.locator(shown).count()).toBe(0);
    await page.goBack();
    await page.locator(shown).first().waitFor();
    expect(new URL(page.url()).hash).toBe(hash);
    await page.goForward();
    await expect.poll(() => page.locator(shown).count()).toBe(0);
    expect(complaints).toEqual([]);
  });

  const ofSources = views.filter(([view]) => view !== "visuals" && view !== "checkins");
  test.each(ofSources)("%s: says that there is nothing", async (view, shown, more) => {
    await open(address(view, { ...more, site: "empty" }));
    await page.locator(".state-title").first().waitFor();
    expect(await page.locator(shown).count()).toBe(0);
    expect(await page.getByRole("alert").count()).toBe(0);
    expect(complaints).toEqual([]);
  });

  test.each(ofSources)("%s: says that its source is down, and tries again", async (view, _, more) => {
    await open(address(view, { ...more, site: "down" }));
    await page.getByRole("alert").first().waitFor();
    const again = page.waitForRequest((request) =>
      /\/(?:api|graphql)\b/.test(new URL(request.url()).pathname),
    );
    await page.getByRole("button", { name: "Try again" }).first().click();
    await again;
    await page.getByRole("alert").first().waitFor();
  });
}

const wanted = chosen(["es8", "os3"], 0);
for (const server of named().filter(({ name }) => wanted.includes(name))) {
  describe(`${server.product} ${server.version}`, () => {
    prepareConsole(() => serveLinesAndSpans(server));
    testEachView(elasticViews);

    test("10,000 lines are counted, brushed, filtered and loaded", async () => {
      await open(address("logs"));
      await told()
        .filter({ hasText: `of ${plain(lineCount)} lines loaded` })
        .waitFor();
      const legend = await page.locator(".legend-part").allTextContents();
      const { groups } = await post("logs/counts", { ...logs, ...range, group_by: "severity" });
      expect(legend.toSorted()).toEqual(
        groups.map((one) => `Only ${one.value} ${plain(one.count)}`).toSorted(),
      );
      await drag(".histogram", 0.25, 0.5);
      await expect.poll(() => state().get("range")).not.toBe(`${range.from}/${range.to}`);
      const [from, to] = state().get("range")?.split("/") ?? [];
      const { total } = await post("logs/counts", { ...logs, from, to });
      expect(total / lineCount).toBeCloseTo(0.25, 1);
      await told()
        .filter({ hasText: `of ${plain(total)} lines loaded` })
        .waitFor();
      await page.goBack();
      await told()
        .filter({ hasText: `of ${plain(lineCount)} lines loaded` })
        .waitFor();
      await page.evaluate(async () => {
        while (document.querySelector(".status-line")?.textContent?.startsWith("10,000 lines") !== true) {
          document.querySelector<HTMLElement>(".foot button")?.click();
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      });
      expect(await page.locator(".line-item").count()).toBe(lineCount);
      const keys = await page.locator(".line-item").evaluateAll((all) => all.map((one) => one.dataset.key));
      expect(new Set(keys).size).toBe(lineCount);
      await queryBox().fill("http.response.status_code=500");
      await queryBox().press("Enter");
      await told()
        .filter({ hasText: `of ${plain(lineCount / 10)} lines loaded` })
        .waitFor();
      expect(await page.locator(".line-item:not([data-severity=error])").count()).toBe(0);
      expect(complaints).toEqual([]);
    });

    test("5,000 spans of a trace are shown, folded and found, with their line", async () => {
      await open(address("trace", { id: largeTrace }));
      const rows = page.locator(".span-item");
      await expect.poll(() => rows.count()).toBe(spanCount);
      const spans = await ask("tracing/trace", { site_ids: ["shop"], trace_id: largeTrace });
      expect(spans).toHaveLength(spanCount);
      await page.locator(".section .line-item").waitFor();
      const visible = () => page.locator(".span-item:not([hidden])").count();
      await page.getByRole("button", { name: "Spans below it" }).first().click();
      await expect.poll(visible).toBe(1);
      await page.getByRole("button", { name: "Spans below it" }).first().click();
      await expect.poll(visible).toBe(spanCount);
      await page.getByLabel("Find in spans").fill("the last step");
      await expect.poll(() => page.locator(".span-item[data-sought]").count()).toBe(1);
      expect(complaints).toEqual([]);
    });

    test("traces are those of the API, by tag and by a stretch of their durations", async () => {
      await open(address("traces"));
      const listing = {
        site_ids: ["shop"],
        ...range,
        pagination: { per_page: 1_000, order: "DESC", cursor: "Time" },
      };
      const all = await ask("tracing/traces/performance", listing);
      const drawn = () =>
        page
          .locator(".duration-bar")
          .evaluateAll((bars) => bars.reduce((sum, bar) => sum + Number(bar.getAttribute("data-count")), 0));
      await expect.poll(drawn).toBe(all.length);
      await drag(".durations", 0.1, 0.5);
      await expect.poll(() => state().has("below")).toBe(true);
      const [min, below] = [Number(state().get("min")), Number(state().get("below"))];
      const within = all.filter(({ duration }) => Number(duration) >= min && Number(duration) < below);
      await expect.poll(drawn).toBe(within.length);
      await page.goBack();
      await expect.poll(drawn).toBe(all.length);
      await page.getByRole("button", { name: "Only plan: pro" }).first().click();
      await expect.poll(() => state().get("query")).toBe("tag.plan=pro");
      await expect.poll(drawn).toBe(30);
      expect(complaints).toEqual([]);
    });

    test("actions, errors, slow events and deploys have the figures of the API", async () => {
      const openTable = async (view: string) => {
        await open(address(view));
        // Rows of the table before are none of this one.
        await page.reload();
        await page.locator(".figures tbody tr").first().waitFor();
      };
      const figures = async (view: string, column: number) => {
        await openTable(view);
        const cells = await page.locator(`.figures tbody tr > :nth-child(${column})`).allTextContents();
        return cells.map((text) => Number(text.replaceAll(",", ""))).sort((a, b) => a - b);
      };
      const sorted = (values: readonly unknown[]) => values.map(Number).sort((a, b) => a - b);
      const actions = await ask("tracing/actions", body);
      expect(await figures("actions", 3)).toEqual(sorted(actions.map(({ throughput }) => throughput)));
      const errors = await ask("tracing/traces/errors", {
        site_ids: ["shop"],
        ...range,
        pagination: { per_page: 100, order: "DESC", cursor: "Time" },
      });
      const shown = await figures("errors", 3);
      expect(shown.reduce((sum, count) => sum + count, 0)).toBe(errors.length);
      // Two exceptions in six actions are six errors of two traces each.
      expect(shown).toEqual([2, 2, 2, 2, 2, 2]);
      const events = await ask("tracing/slow_events", body);
      await openTable("slow");
      await page
        .locator(".figures .sparkline")
        .nth(events.length - 1)
        .waitFor();
      expect(await page.locator(".figures tbody tr").count()).toBe(events.length);
      await openTable("deploys");
      expect(await page.locator(".figures tbody tr > :first-child").allTextContents()).toEqual(
        expect.arrayContaining([expect.stringContaining("r2")]),
      );
      expect(complaints).toEqual([]);
    });

    test("100 services are on the map and in its table", async () => {
      await open(address("map"));
      const { upstream, internal, downstream } = await post("tracing/site_edges", body);
      const edges = [...upstream, ...internal, ...downstream];
      expect(edges.length).toBeGreaterThanOrEqual(serviceCount);
      await page.locator(".map-node").nth(edges.length).waitFor();
      const rows = await page
        .locator(".figures tbody tr")
        .evaluateAll((all) => all.map((row) => [row.children[0]?.textContent, row.children[2]?.textContent]));
      expect(rows).toEqual(edges.map(({ service, count }) => [service, plain(count)]));
      expect(complaints).toEqual([]);
    });
  });
}

const logs = { site_id: "shop", source_ids: ["app"], query: "", use_expressions: true };

for (const { name, version } of namedPrometheus().filter((one) => one.name === "prom3")) {
  describe(`prometheus ${version}`, () => {
    prepareConsole(async () => {
      const prometheus = await startPrometheus(name, printMetrics());
      const served = await serveMetrics(prometheus.url);
      const stop = async () => {
        await served.stop();
        await prometheus.stop();
      };
      return { ...served, stop };
    });
    testEachView(metricViews);

    test("200 series: each value under the cursor is the API's, and a stretch becomes the range", async () => {
      await open(address("metrics", { name: "queue_depth", tags: "worker=*", resolution: "MINUTELY" }));
      const series = page.getByRole("region", { name: "Series" }).locator("tbody tr");
      await expect.poll(() => series.count()).toBe(seriesCount);
      const box = await page.locator(".chart .u-over").boundingBox();
      await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) / 2, (box?.y ?? 0) + 50);
      const time = async () => (await page.locator(".chart-readout").textContent()) ?? "";
      await expect.poll(time).toMatch(/:\d\d UTC$/);
      const minute = Number(/:(\d\d) UTC$/.exec(await time())?.[1]);
      const shown = await series.evaluateAll((rows) =>
        rows.map((row) => [
          row.children[0]?.textContent?.match(/w\d+/)?.[0],
          row.lastElementChild?.textContent,
        ]),
      );
      const expected = Array.from({ length: seriesCount }, (_, at) => [
        `w${String(at).padStart(3, "0")}`,
        plain(valueAt(at, minute)),
      ]);
      expect(shown.toSorted()).toEqual(expected.toSorted());
      await drag(".chart .u-over", 0.2, 0.6);
      await expect.poll(() => state().get("range")).not.toBe(`${range.from}/${range.to}`);
      await page.locator(".chart canvas").waitFor();
      await page.goBack();
      await expect.poll(() => state().get("range")).toBe(`${range.from}/${range.to}`);
      await page.locator(".chart canvas").waitFor();
      expect(complaints).toEqual([]);
    });

    test("the pods of the cluster are those of the API, and are filtered by state", async () => {
      await open(address("kubernetes"));
      const pods = await ask("kubernetes/pods/overview", { ...body, query: "" });
      const shown = page.getByRole("region", { name: "Pods" }).locator("tbody tr .expander");
      await expect.poll(() => shown.count()).toBe(pods.length);
      expect((await shown.allTextContents()).toSorted()).toEqual(
        pods.map((pod) => String(pod.pod_name)).toSorted(),
      );
      const state = String(pods[0]?.state);
      await page.getByLabel("State").selectOption(state);
      await expect.poll(() => shown.count()).toBe(pods.filter((pod) => pod.state === state).length);
      expect(complaints).toEqual([]);
    });
  });
}
