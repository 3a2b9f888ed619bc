// Figures that are kept were counted by the definition of their time. Whoever changes what `src/tracing` answers must make all of
// them anew, and meets this test.
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { requireAt } from "#src/core/collections.ts";
import { spanKinds } from "#src/core/rows.ts";
import { minute } from "#src/core/time.ts";
import { requestRollups } from "#src/tracing/figures/action-rollups.ts";
import { edgesByActionRollups, siteEdgeRollups } from "#src/tracing/figures/edge-rollups.ts";
import { actionsByEventRollups, slowEventRollups } from "#src/tracing/figures/event-rollups.ts";
import { type ActionsByEvent, eventActionsCodec } from "#src/tracing/figures/stored-figures.ts";
import { figuresVersion } from "#src/tracing/rollup-store/figures-version.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { createArrayReader, createRandom } from "../../conformance/trace-fixture.ts";
import { at, createSource, createSpan, signal } from "../span-builder.ts";

/** Calls, queues, links, retries, both sides under one id, lost parents, statements with values, two sites, spans sent twice. */
function createCorpus() {
  const random = createRandom(7);
  const pick = <T>(list: readonly T[]): T => requireAt(list, Math.floor(random() * list.length));
  return Array.from({ length: 3_000 }, (_, n) => {
    const to = Math.floor(random() * 60 * minute);
    const link = { trace_id: `t${n % 60}`, span_id: `s${Math.floor(random() * 3_000)}` };
    return createSpan({
      site_id: pick(["a", "a", "b"]),
      trace_id: `t${n % 60}`,
      span_id: `s${random() < 0.1 ? n - (n % 7) : n}`,
      parent_span_id: random() < 0.2 ? undefined : `s${Math.max(0, n - 60 * Math.ceil(random() * 5))}`,
      links: random() < 0.1 ? [{ ...link, trace_state: "", attributes: {} }] : [],
      to,
      from: to - Math.floor(random() ** 4 * 1e5),
      service_name: pick(["web", "jobs", "db"]),
      span_name: pick(["work", "rest"]),
      span_kind: pick(spanKinds),
      status_code: pick(["OK", "ERROR", "UNSET"]),
      peer: pick(["cache", ""]) || undefined,
      statement: pick([`select ${n}`, `insert into t values ('${n}')`, "begin", ""]) || undefined,
      count: pick([1, 1, 1, 4]),
      revision: pick(["r1", "r2", ""]) || undefined,
      report: random() < 0.02,
      tags: {},
    });
  }).flatMap((span, n) => (n % 20 === 0 ? [span, { ...span, service_name: "again", links: [] }] : [span]));
}

test("the version of figures is the digest of the answers over a fixed corpus", async () => {
  const reader = createArrayReader(createCorpus());
  const range = { from: at(0), to: at(60 * minute) };
  const ranges = [
    { from: at(0), to: at(20 * minute - 1e-6) },
    { from: at(20 * minute), to: range.to },
  ];
  const digest = createHash("sha256");
  for (const partners of [[], [createSource("b")]]) {
    const query = { sources: [createSource("a")], partners, range, budget: createBudget(1e9) } as const;
    const figures = await siteEdgeRollups.read(reader, query, ranges, signal);
    digest.update(JSON.stringify(figures.map((own) => sortTexts(siteEdgeRollups.codec.encode(own)))));
    const byAction = await edgesByActionRollups.read(reader, query, ranges, signal);
    for (const own of byAction)
      digest.update(JSON.stringify(sortParts(await edgesByActionRollups.codec.encode(own))));
  }
  const query = {
    sources: [createSource("a")] as const,
    range,
    kind: undefined,
    limit: 1,
    budget: createBudget(1e9),
    requiredAttributes: [],
    excludedAttributes: [],
  };
  const figures = await slowEventRollups.read(reader, query, ranges, signal);
  digest.update(JSON.stringify(figures.map((own) => sortTexts(slowEventRollups.codec.encode(own)))));
  const byEvent = ranges.map((): ActionsByEvent => new Map());
  for (const kind of actionsByEventRollups) {
    const figures = await kind.read(reader, query, ranges, signal);
    for (const [at, own] of figures.entries())
      for (const [event, actions] of own) requireAt(byEvent, at).set(event, actions);
  }
  for (const own of byEvent) digest.update(JSON.stringify(sortParts(await eventActionsCodec.encode(own))));
  const byRevision = await requestRollups.read(reader, query, ranges, signal);
  for (const own of byRevision)
    digest.update(JSON.stringify(sortParts(await requestRollups.codec.encode(own))));
  // If this fails, and the change is meant: write the new digest into `figures-version.ts`.
  expect(digest.digest("base64url").slice(0, 16)).toBe(figuresVersion);
});

/** Pairs of a key and the text of a value. */
function sortParts(value: unknown): unknown {
  const parts = value as readonly (readonly [string, string])[];
  return sortTexts(parts.map(([key, text]) => [key, JSON.parse(text)]));
}

/** Lists are in no particular order. */
function sortTexts(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const texts = value.map((one) => JSON.stringify(sortTexts(one)));
  return value.every((one) => Array.isArray(one)) ? texts.sort() : texts;
}
