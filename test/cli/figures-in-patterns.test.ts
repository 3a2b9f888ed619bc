// What `check` says where the index of figures lies among the indices of spans.
import { expect, test } from "vitest";
import { z } from "zod";
import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import { run } from "../../src/cli/check/check.ts";
import type { BackendKind } from "../../src/store/backend.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

const kind: BackendKind<unknown> = {
  kind: "fake",
  parseConfig: (value) => z.strictObject({ url: z.union([z.string(), z.array(z.string())]) }).parse(value),
  create: (name) => ({
    name,
    kind: "fake",
    stores: {},
    probe: async () => ({ product: "Fake", version: "1.2.3" }),
    inspections: {},
    openRollups: () => createMemoryRollups(),
    close: async () => undefined,
  }),
};

async function check(index: string, backend = "figures"): Promise<string> {
  const file = `
backends:
  elk: { kind: fake, url: ["http://a", "http://b/"] }
  figures: { kind: fake, url: "http://B:80/" }
  far: { kind: fake, url: "http://c" }
rollups: { backend: ${backend}, index: jaeger-figures }
sites: { shop: { traces: { backend: elk, index: "${index}" } } }
`;
  const shell = createShell({
    now: toInstant("2026-06-01T00:00:00Z"),
    files: { "readout.yaml": file },
    kinds: [kind],
  });
  await run([], shell);
  return shell.printed();
}

test.each([
  ["jaeger-*", "elk"],
  ["jaeger-*", "figures"],
  ["spans,*-figures", "elk"],
  ["_all", "elk"],
  ["-jaeger-figures,jaeger-*", "elk"],
])("%s has the index of figures of %s", async (index, backend) => {
  const printed = await check(index, backend);
  expect(printed).toContain(`  limitation: it is among the indices of shop's traces, ${index}: give it`);
  expect(printed).toMatch(/, 1 limitation$/m);
});

test.each([
  ["jaeger-*", "far"],
  ["jaeger-span-*", "elk"],
  ["jaeger-*,-jaeger-fig*", "elk"],
  ["eu:jaeger-*", "elk"],
])("%s does not have that of %s", async (index, backend) => {
  const printed = await check(index, backend);
  expect(printed).not.toContain("limitation:");
  expect(printed).toContain("Figures of spans in");
});
