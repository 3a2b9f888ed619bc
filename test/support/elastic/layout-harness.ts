// Reads documents from a fake cluster in memory with the layout `auto`: which layout is detected, how the lines are decoded, and
// what an inspection reports.
import { afterEach } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LineCountQuery, LogSource } from "#src/store/logs.ts";
import { testIO } from "../io.ts";
import { openScriptedSource, type ScriptedSource } from "../scripted-http-source.ts";
import { never } from "../signals.ts";
import { createFakeSearch, type FakeIndex } from "./fake-cluster.ts";

export type JsonObject = { readonly [key: string]: unknown };
export const at = "2026-01-15T10:00:00.000Z";
const range = { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) };

/** The dynamic mapping that a server makes of the documents; dots in keys are nesting. */
export function buildMapping(documents: readonly JsonObject[]): object {
  const properties: Record<string, object> = {};
  for (const document of documents) {
    for (const [spelled, own] of Object.entries(document)) {
      const [key = "", ...rest] = spelled.split(".");
      const value = rest.length > 0 ? { [rest.join(".")]: own } : own;
      if (key === "@timestamp") properties[key] = { type: "date" };
      else if (typeof value === "object" && value !== null) {
        const below = buildMapping([value as JsonObject]) as Mapping;
        properties[key] = mergeMappings(properties[key], below);
      } else properties[key] = { type: typeof value === "number" ? "long" : "keyword" };
    }
  }
  return { properties };
}

interface Mapping {
  readonly properties?: Readonly<Record<string, object>>;
}

function mergeMappings(before: Mapping | undefined, { properties = {}, ...own }: Mapping): object {
  const all: Record<string, object> = { ...before?.properties };
  for (const [key, value] of Object.entries(properties)) all[key] = mergeMappings(all[key], value);
  return Object.keys(all).length > 0 ? { ...own, properties: all } : own;
}

export function createFakeIndex(
  documents: readonly JsonObject[],
  mappings = buildMapping(documents),
): FakeIndex {
  const { properties } = mappings as { readonly properties?: object };
  return {
    documents: documents.map((document) => ({ "@timestamp": at, ...document })),
    mappings: { ...mappings, properties: { "@timestamp": { type: "date" }, ...properties } },
  };
}

export function readProperties({ mappings }: Pick<FakeIndex, "mappings">): object {
  return (mappings as { readonly properties: object }).properties;
}

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const resource of opened.splice(0).reverse()) await resource.close();
});

/** A backend over these indices; `hold` replaces them. */
export async function openIndices(indices: Readonly<Record<string, FakeIndex>>) {
  let search = createFakeSearch(indices, "Elasticsearch");
  let following: { readonly part: string; readonly search: typeof search } | undefined;
  const fake: ScriptedSource = await openScriptedSource((response, request, text) => {
    if (following !== undefined && `${request.url} ${text}`.includes(following.part)) {
      search = following.search;
      following = undefined;
    }
    search.reply(response, request, text);
  });
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url, timeout: "60s" }), testIO);
  opened.push(fake, backend);
  const source = { id: "app", index: "logs-*", layout: "auto", tenantFilter: undefined };
  return {
    fake,
    hold(indices: Readonly<Record<string, FakeIndex>>) {
      search = createFakeSearch(indices, "Elasticsearch");
    },
    /** Replaces them before the next request with this part in its address or body is answered. */
    holdBefore(part: string, indices: Readonly<Record<string, FakeIndex>>) {
      following = { part, search: createFakeSearch(indices, "Elasticsearch") };
    },
    async read(text = "", over: Partial<LogSource> = {}): Promise<LogLine[]> {
      const limits = { expectedLines: 100, documentLimit: 1_000, tieLimit: 1_000 };
      const sources = [{ ...source, ...over }] as const;
      const query = { sources, range, filter: parse(text), order: "asc", ...limits } as const;
      const lines: LogLine[] = [];
      for await (const batch of backend.stores.logs?.lines(query, never) ?? []) lines.push(...batch);
      return lines;
    },
    /** What the index counts of the lines by hours, and by what `over` says. */
    count: async (over: Partial<LineCountQuery> = {}) =>
      backend.stores.logs?.count?.({ source, range, filter: parse(""), step: 3_600_000, ...over }, never),
    /** What `init` would propose of the indices. */
    survey: async (patterns: readonly string[] = ["logs-*"]) => backend.survey?.(patterns, never),
    async report(over: Partial<LogSource> = {}) {
      const report = await backend.inspections.logs?.({ ...source, ...over }, never);
      if (report === undefined) throw new Error("no inspection of logs");
      return { ...report, guesses: report.limitations.filter((text) => text.includes("no known layout")) };
    },
  };
}

/** Reads an index with one document. */
export async function readSingleDocument(document: JsonObject) {
  const { read, report } = await openIndices({ "logs-1": createFakeIndex([document]) });
  const [line] = await read();
  const { layout, guesses } = await report();
  const { severity, message, hostname, group } = line ?? {};
  return { layout, guesses, line: { severity, message, hostname, group } };
}
