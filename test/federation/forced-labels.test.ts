// A label that separates sites is no tag of any, however many places the metrics of a site are in.
import { describe, expect, test } from "vitest";
import { kinds } from "#resolvers/index.ts";
import { connectSites } from "#src/access/sites.ts";
import { parseConfig } from "#src/config/config.ts";
import { base, createSubject, token } from "../wire/harness.ts";
import { openCluster } from "./failing-clusters.ts";

function ask(metrics: string, path: string, tags: Record<string, string>, groups: readonly string[] = []) {
  const clusters = ["old", "new"].map((name) => openCluster(name, () => undefined));
  for (const [n, cluster] of clusters.entries())
    cluster.metrics.append("load", "gauge", "value", { tenant: "shop", zone: "eu", host: `h${n}` })(base, 1);
  const text = `backends: { old: { kind: memory }, new: { kind: memory } }\nsites: { shop: { metrics: ${metrics} } }`;
  const config = parseConfig(text, "readout.yaml", { kinds, env: {}, readText: () => "" });
  const backends = new Map(clusters.map(({ backend }) => [backend.name, backend]));
  const { server } = createSubject({ served: { sites: connectSites(config, backends) } });
  const range = { from: new Date(base - 60_000).toISOString(), to: new Date(base + 60_000).toISOString() };
  const select = [{ id: "value", name: "load", field: "gauge", tags }];
  return server.fetch(`http://readout/api/v2/metrics/${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ site_id: "shop", ...range, select, group_by: groups.map((Tag) => ({ Tag })) }),
  });
}

const old = "{ backend: old, match: { tenant: shop } }";
const next = "{ backend: new, match: { tenant: shop, zone: eu } }";

describe("a forced label", () => {
  test.each([
    ["one place", old],
    ["a list of one place", `[${old}]`],
    ["two places", `[${old}, ${next}]`],
  ])("of %s is no tag of the site", async (_, metrics) => {
    const selected = await ask(metrics, "timeseries", { tenant: "*" });
    const grouped = await ask(metrics, "list", { host: "*" }, ["tenant"]);
    for (const [answer, path] of [
      [selected, "select.0.tags.tenant"],
      [grouped, "group_by.0"],
    ] as const) {
      expect(answer.status).toBe(422);
      const issue = { path, message: '"tenant" is no tag of this site' };
      expect(await answer.json()).toMatchObject({ error: "invalid_request", details: { issues: [issue] } });
    }
  });

  test("of one of two places is a tag of the other", async () => {
    const answer = await ask(`[${old}, ${next}]`, "timeseries", { zone: "*" });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({ series: [{ tags: { zone: "eu" }, data: [{ value: 1 }] }] });
  });
});
