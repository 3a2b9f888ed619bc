// The store of figures over an index that cannot be written to. Real servers are in `test/backends/elastic/rollup-store.test.ts`.
import { expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { testIO } from "../../support/io.ts";
import { openScriptedSource, sendJson } from "../../support/scripted-http-source.ts";
import { never } from "../../support/signals.ts";

test("a closed index is told as such, and not created again", async () => {
  const source = await openScriptedSource((response, { method, url = "" }) => {
    if (url === "/") return sendJson(response, { version: { number: "8.19.8" } });
    const type = method === "PUT" ? "resource_already_exists_exception" : "index_closed_exception";
    sendJson(response, { error: { type, reason: type }, status: 400 }, 400);
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: source.url }), testIO);
  const created = backend
    .openRollups?.("figures")
    .create([{ id: "a", site: "shop", made: 0, body: "{}" }], never);
  await expect(created).rejects.toThrow("index_closed_exception");
  expect(source.requests.map(({ method }) => method)).not.toContain("PUT");
  await backend.close();
  await source.close();
});
