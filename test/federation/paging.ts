// Log lines as a client pages through them, and exports them.
import type { Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { ndjson } from "#src/operations/logs/export.ts";
import { lines } from "#src/operations/logs/lines.ts";
import type { Context } from "#src/operations/runtime/operation.ts";
import type { LogStore } from "#src/store/logs.ts";
import { base, buildSource } from "./split-logs.ts";

/** A site whose log sources `app` and `nginx` are in the store; more than `cap` lines of a millisecond are answered in parts. */
export function createContext(store: LogStore, cap: number): Context {
  const sources = new Map(["app", "nginx"].map((id) => [id, buildSource(id)]));
  const site: Site = {
    id: "shop",
    retention: 86_400_000,
    counterDefault: "cumulative",
    logs: { backend: "old", store, sources },
  };
  return {
    user: "ana",
    sites: new Map([["shop", site]]),
    limits: { ...defaults.limits, linesPerMillisecond: cap },
    now: () => fromMillis(base + 3_600_000),
    signal: new AbortController().signal,
  };
}

export interface Asked {
  readonly perPage: number;
  readonly order: string;
  readonly query: string;
  readonly sources?: readonly string[];
}

function parseRequest({ perPage, order, query, sources = ["nginx", "app"] }: Asked, time: string | null) {
  const pagination = { per_page: perPage, order, cursor: { time } };
  return lines.request.parse({ site_id: "shop", source_ids: sources, query, pagination });
}

/** All pages, as a client reads them that sends back the last timestamp. */
export async function readPages(context: Context, asked: Asked): Promise<unknown[][]> {
  const pages: unknown[][] = [];
  for (let time: string | null = null; ; ) {
    const answer = lines.run(parseRequest(asked, time), context);
    if (!(Symbol.asyncIterator in answer)) throw new Error("rows expected");
    const page: { timestamp: string }[] = [];
    for await (const { text } of answer) page.push(...JSON.parse(`[${text}]`));
    if (page.length > 0) pages.push(page);
    if (page.length < asked.perPage) return pages;
    if (pages.length > 200) throw new Error("the pages do not end");
    time = page.at(-1)?.timestamp ?? null;
  }
}

export async function readExport(context: Context, asked: Asked): Promise<string> {
  const answer = ndjson.run(parseRequest(asked, null), context);
  if (!("pieces" in answer)) throw new Error("pieces expected");
  let text = "";
  for await (const piece of answer.pieces) text += piece.text;
  return text;
}
