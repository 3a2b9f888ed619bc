// Who makes figures of spans, and of which sites: nobody without `rollups`.
import { expect, test, vi } from "vitest";
import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import { connectSites } from "#src/access/sites.ts";
import { listRollers, openRollupStore, runRollers } from "#src/cli/serve/rollers.ts";
import { type Config, parseConfig } from "#src/config/config.ts";
import type { Backend } from "#src/store/backend.ts";
import type { SpanReader } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { parseManifestId } from "#src/tracing/rollup-store/manifest.ts";
import { createStoredSpans } from "../tracing/rollups/stored-spans.ts";
import { at } from "../tracing/span-builder.ts";

const hash = (digit: string) => digit.repeat(64);
const sites = `
backends: { elk: { kind: fake }, other: { kind: fake } }
sites:
  a: { retention: 1h, traces: { backend: elk, index: t } }
  b: { retention: 1h, traces: { backend: elk, index: t } }
  c: { traces: [{ backend: elk, index: t }, { backend: other, index: t }] }
tokens:
  - { user: all, sha256: "${hash("1")}", sites: [a, b] }
  - { user: one, sha256: "${hash("2")}", sites: [a] }
  - { user: same, sha256: "${hash("3")}", sites: [a] }
  - { user: both, sha256: "${hash("5")}", sites: [a, c] }
  - { user: logs, sha256: "${hash("4")}", sites: [b], scopes: [logs] }
`;

const parse = (text: string) =>
  parseConfig(text, "readout.yaml", {
    kinds: new Map([["fake", { parseConfig: () => undefined }]]),
    env: {},
    readText: () => "",
  });

/** Those of the configuration, with the same spans each. */
function createBackends(
  { backends }: Config,
  reader: SpanReader,
  openRollups?: Backend["openRollups"],
): ReadonlyMap<string, Backend> {
  const create = (name: string): Backend => ({
    name,
    kind: "fake",
    inspections: {},
    ...(openRollups && { openRollups }),
    stores: { traces: { ...reader, ...createSpanAnalytics(reader) } },
    probe: async () => ({ product: "fake", version: "1" }),
    close: async () => undefined,
  });
  return new Map(Object.keys(backends).map((name) => [name, create(name)]));
}

function open(rollups: string) {
  const config = parse(sites + rollups);
  const { reader } = createStoredSpans();
  const openSnapshot = vi.fn(reader.openSnapshot);
  const store = createMemoryRollups();
  const openRollups = vi.fn(() => store);
  const backends = createBackends(config, { ...reader, openSnapshot }, openRollups);
  const recordRolled = vi.fn();
  const stop = new AbortController();
  const ended = runRollers(
    { config, sites: connectSites(config, backends) },
    openRollupStore(config, backends),
    { log: () => undefined, recordRolled },
    () => at(0),
    stop.signal,
  );
  return { openSnapshot, openRollups, recordRolled, store, stop, ended };
}

test("nothing is read or written where the configuration has no rollups", async () => {
  const { openSnapshot, openRollups, ended } = open("");
  await ended;
  expect(openSnapshot).not.toHaveBeenCalled();
  expect(openRollups).not.toHaveBeenCalled();
});

test("figures are made of each site, for what each token may see, until the end", async () => {
  const { openRollups, recordRolled, store, stop, ended } = open("rollups: { backend: other, rate: 1 }");
  await expect.poll(() => recordRolled.mock.calls.length).toBeGreaterThanOrEqual(64);
  expect(openRollups).toHaveBeenCalledWith("readout-rollups");
  stop.abort();
  await ended;
  const made = new Set(
    recordRolled.mock.calls.map(([{ backend, site, kind }]) => `${backend} ${site} ${kind}`),
  );
  expect([...made].sort()).toEqual([
    "elk a action_edges",
    "elk a actions",
    "elk a site_edges",
    "elk a slow_event_actions",
    "elk a slow_events",
    "elk b action_edges",
    "elk b actions",
    "elk b site_edges",
    "elk b slow_event_actions",
    "elk b slow_events",
    "elk, other a action_edges",
    "elk, other a site_edges",
    "elk, other c action_edges",
    "elk, other c actions",
    "elk, other c site_edges",
    "elk, other c slow_event_actions",
    "elk, other c slow_events",
  ]);
  const groups: string[] = [];
  for await (const batch of store.list(new AbortController().signal)) {
    for (const { id, site } of batch) if (parseManifestId(id) !== undefined) groups.push(site);
  }
  // Requests, slow events, their actions in 16 parts, and edges and those of actions, of `a` alone, with `b` and with `c`; those of
  // `b` with `a` only, since no token sees the traces of `b` alone, and those of `c` with `a`.
  expect(groups.sort()).toEqual([...Array(24).fill("a"), ...Array(20).fill("b"), ...Array(20).fill("c")]);
});

/** The rollers over `elk`, `other` and `far`, and what they would make. */
function list(sites: string) {
  const config = parse(`
backends: { elk: { kind: fake }, other: { kind: fake }, far: { kind: fake } }
sites: { ${sites} }
tokens: [{ user: all, sha256: "${hash("1")}", sites: "*" }]
rollups: { backend: far, rate: 0.5 }
`);
  const { reader } = createStoredSpans();
  const backends = createBackends(config, reader);
  if (config.rollups === undefined) throw new Error("no rollups");
  const telemetry = { log: () => undefined, recordRolled: () => undefined };
  const of = { store: createMemoryRollups(), telemetry, now: () => at(0) };
  return listRollers(config, config.rollups, connectSites(config, backends), of);
}

test("figures are made for what a user by a certificate may see, as for a token", () => {
  const config = parse(`${sites}rollups: { backend: other, rate: 1 }\n`);
  const connected = connectSites(config, createBackends(config, createStoredSpans().reader));
  const of = {
    store: createMemoryRollups(),
    now: () => at(0),
    telemetry: { log: () => undefined, recordRolled: () => undefined },
  };
  const listGroups = (own: Config) =>
    listRollers(own, { backend: "other", index: "x", rate: 1 }, connected, of)
      .flatMap(({ targets }) => targets.map(({ group }) => group))
      .sort();
  const tokens = config.tokens.filter(({ user }) => user !== "both");
  const certificates = [{ user: "both", san: "URI:x", sites: ["a", "c"] }];
  expect(listGroups({ ...config, tokens, certificates })).toEqual(listGroups(config));
  expect(listGroups({ ...config, tokens })).not.toEqual(listGroups(config));
});

test("rollers that read one backend divide its rate", () => {
  const rollers = list(`
  a: { traces: { backend: elk, index: t } },
  b: { traces: [{ backend: other, index: t }, { backend: elk, index: t }] },
  c: { traces: { backend: far, index: t } }`);
  expect(rollers.map(({ backend, rate }) => [backend, rate]).sort()).toEqual([
    ["elk, other", 0.25],
    ["elk", 0.25],
    ["far", 0.5],
  ]);
});

test.each([
  "index: t, where: x",
  "index: t, tag_prefixes: [x.]",
  "index: t, action_attribute: x",
  "index: t, layout: otlp",
  "index: u",
])("figures of a site in two backends are others where the second one has %s", (change) => {
  const listGroups = (second: string) =>
    list(`a: { traces: [{ backend: elk, index: t }, { backend: other, ${second} }] }`).flatMap(
      ({ targets }) => targets.map(({ group }) => group),
    );
  const before = new Set(listGroups("index: t"));
  expect(before.size).toBe(20);
  expect(listGroups(change).filter((group) => before.has(group))).toEqual([]);
});
