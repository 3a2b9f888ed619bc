// A pattern with lines of two layouts, whose times are dates in the one and nanoseconds in the other. Each index parses the
// bounds of all searches, also of those that are for the other layout.
import { afterEach, expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { allTime, fromMillis, type Instant, parseInstant } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { createFakeSearch, type FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { openCluster } from "../../../support/elastic/test-index.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

const [keyword, text] = [{ type: "keyword" }, { type: "text" }];

/** An index of Elastic Common Schema, with a time of type `date`. */
const createEcs = (time: string | readonly string[]): FakeIndex => ({
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      message: text,
      ecs: { properties: { version: keyword } },
      log: { properties: { level: keyword } },
    },
  },
  documents: [{ "@timestamp": time, message: "a", log: { level: "info" }, ecs: { version: "8.0.0" } }],
});

/** An index of Fluent Bit, with a time of type `date_nanos`. */
const createFluentBit = (time: string): FakeIndex => ({
  mappings: {
    properties: {
      "@timestamp": { type: "date_nanos" },
      log: text,
      stream: keyword,
      kubernetes: { properties: { pod_name: keyword } },
    },
  },
  documents: [{ "@timestamp": time, log: "b", stream: "stdout", kubernetes: { pod_name: "web-1" } }],
});

interface Hits {
  readonly hits: readonly { readonly sort: readonly number[] }[];
}
const allRange = { from: fromMillis(-1_000), to: (allTime.to + 1n) as Instant };

/** The lines of a server that rejects times that a `date_nanos` cannot hold, as bounds and to sort by. */
async function readLines(
  indices: Readonly<Record<string, FakeIndex>>,
  range = allRange,
  tenantFilter?: string,
): Promise<readonly (string | undefined)[]> {
  const search = createFakeSearch(indices, "Elasticsearch");
  const fake = await openScriptedSource((response, request, body) => {
    const bounds = [...body.matchAll(/"[gl]te?":"([^"]+)"/g)].map(([, text = ""]) => parseInstant(text));
    if (bounds.some((bound) => bound !== undefined && (bound < allTime.from || bound > allTime.to)))
      return sendJson(response, { error: "cannot be stored in nanosecond resolution" }, 400);
    const { hits } = search.answer(request, body) as { readonly hits?: Hits };
    if (body.includes('"numeric_type":"date_nanos"') && hits?.hits.some(({ sort: [time = 0] }) => time < 0))
      return sendJson(response, { error: "before the epoch in 1970" }, 400);
    search.reply(response, request, body);
  });
  const cluster = openCluster(fake.url);
  opened.push(fake, cluster);
  const lines: LogLine[] = [];
  const query = {
    sources: [{ id: "app", index: "logs-*", layout: "auto", tenantFilter }],
    range,
    filter: parse(""),
    order: "asc",
    expectedLines: 10,
    documentLimit: 10,
    tieLimit: 10,
  } as const;
  for await (const batch of cluster.store.lines(query, never)) lines.push(...batch);
  return lines.map(({ message }) => message);
}

const fluentBit = createFluentBit("2026-01-15T10:00:01Z");

test("lines of both layouts are read in a range beyond what nanoseconds can hold", async () => {
  const ecs = createEcs("2026-01-15T10:00:00Z");
  expect(await readLines({ "logs-date": ecs, "logs-nanos": fluentBit })).toEqual(["a", "b"]);
});

test("a document with a time before 1970 beside one in the range is a line of neither", async () => {
  const times = ["2026-01-15T10:00:00Z", "1950-01-01T00:00:00Z"];
  const several = createEcs(times);
  const indices = {
    "logs-date": {
      ...several,
      documents: [several, createEcs("2026-01-15T10:00:02Z")].flatMap((one) => one.documents),
    },
    "logs-nanos": fluentBit,
  };
  const range = { from: fromMillis(Date.parse("2026-01-01")), to: fromMillis(Date.parse("2026-02-01")) };
  expect(await readLines(indices, range)).toEqual(["b", "a"]);
});

test("a line out there is refused", async () => {
  const ecs = createEcs("2262-04-11T23:47:16.855Z");
  await expect(readLines({ "logs-date": ecs, "logs-nanos": fluentBit })).rejects.toMatchObject({
    slug: "not_supported_by_backend",
  });
});

test("a line out there of another tenant is not", async () => {
  const ecs = createEcs("2262-04-11T23:47:16.855Z");
  const indices = { "logs-date": ecs, "logs-nanos": fluentBit };
  expect(await readLines(indices, allRange, "stream=stdout")).toEqual(["b"]);
  await expect(readLines(indices, allRange, "log.level=info")).rejects.toMatchObject({
    slug: "not_supported_by_backend",
  });
});
