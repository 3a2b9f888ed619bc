// One corpus of log lines, held whole by one memory store and split by line over several, which are read as one.
import { createMemoryLogs, type StoredLine } from "#resolvers/memory/stores/log-store.ts";
import { createFederatedLogs, type FederatedSource } from "#src/federation/federated-logs.ts";
import type { LogSource, LogStore } from "#src/store/logs.ts";

export const base = Date.UTC(2026, 0, 15, 10);

export interface SplitLine {
  readonly source: string;
  /** The stores that hold it; several where it has copies. */
  readonly stores: readonly [number, ...number[]];
  readonly line: StoredLine;
}

const backendNames = ["old", "new", "eu"] as const;

export function buildSource(id: string): LogSource {
  return { id, index: id, layout: "auto", tenantFilter: undefined };
}

/**
 * Returns a store that holds all lines and one that reads them from `count` stores. The whole store has the ids that the
 * other one answers.
 */
export function splitLogs(
  all: readonly SplitLine[],
  count: number,
  { dedupe, change = (store) => store }: SplitOptions = {},
): { readonly whole: LogStore; readonly split: LogStore } {
  const whole = createMemoryLogs();
  const parts = backendNames.slice(0, count).map((backend) => ({ backend, store: createMemoryLogs() }));
  const names = [...new Set(all.map(({ source }) => source))];
  for (const source of names) {
    const own = all.filter((one) => one.source === source);
    whole.add(
      source,
      own.flatMap(({ stores, line }) =>
        dedupe === "id"
          ? [line]
          : stores.map((at) => ({ ...line, id: at === 0 ? line.id : `${backendNames[at]}|${line.id}` })),
      ),
    );
    for (const [at, { store }] of parts.entries()) {
      store.add(
        source,
        own.filter(({ stores }) => stores.includes(at)).map(({ line }) => line),
      );
    }
  }
  const federated = new Map(
    names.map((id): readonly [string, FederatedSource] => {
      const places = parts.map(({ backend, store }, at) => ({
        backend,
        store: change(store, at),
        source: buildSource(id),
      }));
      return [id, { places, dedupe }];
    }),
  );
  return { whole, split: createFederatedLogs(federated) };
}

interface SplitOptions {
  readonly dedupe?: "id";
  readonly change?: (store: LogStore, at: number) => LogStore;
}
