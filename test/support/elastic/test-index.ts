// Writes documents to a real Elasticsearch or OpenSearch for the tests, and opens the store under test on it. Bodies
// are JSON text, so that numbers arrive spelled as a test spells them.
import { elastic } from "#resolvers/elastic/elastic.ts";
import type { Backend } from "#src/store/backend.ts";
import type { Inspections } from "#src/store/inspection.ts";
import type { LogStore } from "#src/store/logs.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";
import { testIO } from "../io.ts";

export interface Cluster {
  readonly url: string;
  readonly backend: Backend;
  readonly store: LogStore;
  readonly inspect: Inspections["logs"];
  readonly traces: SpanStore;
  readonly inspectTraces: Inspections["traces"];
  /** One request; throws on any error, a bulk item's included. */
  request(method: string, path: string, body?: string): Promise<unknown>;
  createIndex(name: string, definition: object): Promise<void>;
  /** Indexes documents, `[_id or undefined, JSON text]`, and returns when they are searchable. */
  write(index: string, documents: readonly (readonly [string | undefined, string])[]): Promise<void>;
  remove(pattern: string): Promise<void>;
  close(): Promise<void>;
}

type Own = Parameters<typeof elastic.create>[3];

/** What the tests write goes to `url`; `settings` is how the store under test reaches it, where that is another way. */
export function openCluster(url: string, own?: Own, settings: object = { url }): Cluster {
  const config = elastic.parseConfig({ timeout: "60s", ...settings });
  const backend = elastic.create("elk", config, testIO, own);
  const { logs: store, traces } = backend.stores;
  const { logs: inspect, traces: inspectTraces } = backend.inspections;
  if (store === undefined || inspect === undefined) throw new Error("no log store");
  if (traces === undefined || inspectTraces === undefined) throw new Error("no span store");

  async function request(method: string, path: string, body?: string): Promise<unknown> {
    const type = path.includes("_bulk") ? "application/x-ndjson" : "application/json";
    const answer = await fetch(url + path, {
      method,
      ...(body === undefined ? {} : { body, headers: { "content-type": type } }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 2_000)}`);
    return JSON.parse(text);
  }

  return {
    url,
    backend,
    store,
    inspect,
    traces,
    inspectTraces,
    request,
    async createIndex(name, definition) {
      await request("PUT", `/${name}`, JSON.stringify(definition));
    },
    async write(index, documents) {
      for (let at = 0; at < documents.length; at += 2_000) {
        const lines = documents
          .slice(at, at + 2_000)
          .flatMap(([id, text]) => [JSON.stringify({ create: id === undefined ? {} : { _id: id } }), text]);
        const answer = (await request("POST", `/${index}/_bulk`, `${lines.join("\n")}\n`)) as {
          errors: boolean;
          items: { create: { error?: unknown } }[];
        };
        if (answer.errors) {
          const first = answer.items.find((item) => item.create.error !== undefined);
          throw new Error(`a document was refused: ${JSON.stringify(first)}`);
        }
      }
      await request("POST", `/${index}/_refresh`);
    },
    async remove(pattern) {
      const found = (await request("GET", `/${pattern}?expand_wildcards=open,closed`)) as Record<
        string,
        unknown
      >;
      for (const name of Object.keys(found)) await request("DELETE", `/${name}`);
    },
    close: () => backend.close(),
  };
}
