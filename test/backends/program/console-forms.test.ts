// What is typed into the console's forms on the demo: when it is sent, what of it stays, and where the focus goes.
import { describe, expect, test } from "vitest";
import { complaints, open, page, prepareConsole, queryBox, state } from "./console-harness.ts";

prepareConsole();

const isFocused = (label: string) =>
  page.getByLabel(label, { exact: true }).evaluate((one) => one === document.activeElement);

describe("a form with a range", () => {
  test("is submitted by Enter and by its button when its range ends now (no dates to validate)", async () => {
    await open("#/traces?range=6h");
    await page.locator(".traces tbody tr").first().waitFor();
    await page.getByLabel("Action").fill("CheckoutController#create");
    await page.getByLabel("Action").press("Enter");
    await expect.poll(() => state().get("action")).toBe("CheckoutController#create");
    await page.getByLabel("Namespace").fill("web");
    await page.getByRole("button", { name: "Search" }).click();
    await expect.poll(() => state().get("namespace")).toBe("web");
    expect(state().get("range")).toBe("6h");
  });

  test("can be submitted after dates out of order were replaced by a range", async () => {
    await open("#/traces?range=2026-01-31T12:00:00Z/2026-01-31T13:00:00Z");
    await page.getByLabel("From (UTC)").fill("2026-01-31T14:00:00");
    await page.getByLabel("To (UTC)").focus();
    await page.getByLabel("Range").selectOption("6h");
    await expect.poll(() => state().get("range")).toBe("6h");
    await page.getByLabel("Action").fill("a");
    await page.getByLabel("Action").press("Enter");
    await expect.poll(() => state().get("action")).toBe("a");
  });

  test("takes a time when it is typed in full, as one step, and keeps the fraction of the other end", async () => {
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.postData() ?? ""));
    await open("#/logs?range=2026-01-31T12:00:00.123Z/2026-01-31T13:00:00.456Z");
    await page.locator(".state-title").waitFor();
    const steps = await page.evaluate(() => history.length);
    await page.getByLabel("From (UTC)").focus();
    // Month and day stand before the year; the time of day stays as it is.
    await page.keyboard.type("01302025");
    await page.keyboard.press("Enter");
    await expect.poll(() => state().get("range")).toBe("2025-01-30T12:00:00Z/2026-01-31T13:00:00.456Z");
    expect(await isFocused("From (UTC)")).toBe(true);
    expect(await page.evaluate(() => history.length)).toBe(steps + 1);
    expect(asked.filter((body) => /"from":"0/.test(body))).toEqual([]);
    expect(complaints).toEqual([]);
  });

  test("leaves the focus where Tab has taken it", async () => {
    await open("#/metrics?name=transaction_duration");
    await page.locator(".chart canvas").waitFor();
    const tag = page.getByLabel("action", { exact: true });
    await tag.fill("Checkout*");
    await tag.press("Tab");
    await expect.poll(() => state().get("tags")).toBe("action=Checkout*");
    await page.locator(".chart canvas").waitFor();
    expect(await page.evaluate(() => document.activeElement?.id)).not.toBe("main");
  });
});

describe("back, while something is typed", () => {
  test.each(["Metric", "With", "action"])("is back, and what stands in %j is not sent", async (label) => {
    await open("#/logs");
    await page.locator(".line-item").first().waitFor();
    await page.evaluate(() => location.assign("#/metrics?name=transaction_duration"));
    await page.locator(".chart canvas").waitFor();
    await page.getByLabel(label, { exact: true }).fill("mem");
    await page.goBack();
    await page.locator(".line-item").first().waitFor();
    expect(page.url()).toContain("#/logs");
    expect(state().has("name")).toBe(false);
    expect(complaints).toEqual([]);
  });

  test("is back within one view", async () => {
    await open("#/metrics?name=transaction_duration");
    await page.locator(".chart canvas").waitFor();
    await page.evaluate(() => location.assign("#/metrics?name=cpu"));
    await page.getByLabel("hostname", { exact: true }).fill("mem");
    await page.goBack();
    await page.getByLabel("action", { exact: true }).waitFor();
    await page.locator(".chart canvas").waitFor();
    expect(Object.fromEntries(state())).toEqual({ name: "transaction_duration" });
  });
});

describe("what is typed and not sent", () => {
  const zones = () => page.getByRole("button", { name: /^Time zone/ });

  test.each([
    { view: "logs", shown: ".line-item", label: "Query" },
    { view: "traces", shown: ".traces tbody tr", label: "Action" },
    { view: "kubernetes", shown: ".cluster tbody tr", label: "Pods" },
    { view: "visuals", shown: ".state-title", label: "Id of a published visual" },
  ])("stays when the times are shown in another zone: $view", async ({ view, shown, label }) => {
    await open(`#/${view}`);
    await page.locator(shown).first().waitFor();
    const field = page.locator("main form").getByLabel(label, { exact: true });
    await field.pressSequentially("severity=warn");
    await zones().click();
    // The rows of before stand until then.
    await expect.poll(() => zones().textContent()).toContain("Local");
    await page.locator(shown).first().waitFor();
    expect(await field.inputValue()).toBe("severity=warn");
    // Nor does a view that is read anew take its place.
    await page.locator("#main").focus();
    await page.keyboard.press("r");
    await page.locator(".unread").first().waitFor();
    expect(await field.inputValue()).toBe("severity=warn");
    expect(complaints).toEqual([]);
  });

  test("stays below a trace, too", async () => {
    await open("#/traces");
    await page.locator(".traces .action a").first().click();
    const field = page.getByLabel("Compare with");
    await field.fill("abc");
    await zones().click();
    await page.locator(".spinner").first().waitFor();
    await field.waitFor();
    expect(await field.inputValue()).toBe("abc");
  });

  test("is searched for with what the legend of the histogram narrows", async () => {
    await open("#/logs");
    await queryBox().fill("message:placed");
    await page.getByRole("button", { name: /^Only info / }).click();
    await expect.poll(() => state().get("query")).toBe("message:placed severity=info");
  });

  test("is searched for with the tag of a trace", async () => {
    await open("#/traces");
    const tag = page.getByRole("button", { name: "Only plan: pro" }).first();
    await tag.waitFor();
    await queryBox().fill("action_name:Checkout");
    await tag.click();
    await expect.poll(() => state().get("query")).toBe("action_name:Checkout tag.plan=pro");
  });
});

test("the tags of a metric that are given one after another are all asked for", async () => {
  const tags = [["action", "namespace"]];
  await page.route("**/api/v2/metrics/type_and_tags/*/*", async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    await route.fulfill({ json: { metric_type: "measurement", available_tags: tags } });
  });
  await open("#/metrics?name=transaction_duration");
  await page.locator(".chart canvas").waitFor();
  await page.getByLabel("action", { exact: true }).fill("Checkout*");
  await page.keyboard.press("Tab");
  await page.getByLabel("namespace", { exact: true }).focus();
  await page.keyboard.type("we");
  // The answer for the first one comes while the second one is typed.
  await page.locator(".spinner").waitFor({ state: "detached" });
  await page.keyboard.type("b");
  await page.keyboard.press("Enter");
  await expect.poll(() => state().get("tags")).toBe("action=Checkout*,namespace=web");
});

test("a site whose metrics are not found is not offered those of the site before it", async () => {
  await page.route("**/api/v2/metrics/names/demo-blog", (route) =>
    route.fulfill({ status: 404, json: { error: "not_found", message: "not found" } }),
  );
  const offered = page.locator("main datalist option");
  await open("#/metrics?site=demo-shop&name=transaction_duration");
  await page.locator(".chart canvas").waitFor();
  expect(await offered.count()).toBeGreaterThan(0);
  await page.evaluate(() => location.assign("#/metrics?site=demo-blog&name=transaction_duration"));
  await page.getByText("It is not there, or this token may not read it.").waitFor();
  expect(await page.locator(".names").count()).toBe(0);
  expect(await offered.count()).toBe(0);
});
