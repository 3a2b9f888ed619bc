// A site is what a token gives access to; this file ties its parts to the stores that answer for them.
import type { Config } from "./config.ts";
import type { Backend, LogSource, LogStore } from "./store.ts";
import type { Millis } from "./time.ts";

export interface Site {
  readonly id: string;
  readonly retention: Millis;
  /** Absent where the site has no logs. */
  readonly logs?: {
    readonly backend: string;
    readonly store: LogStore;
    readonly sources: ReadonlyMap<string, LogSource>;
  };
}
export type Sites = ReadonlyMap<string, Site>;

/** Ties each configured site to the stores of its backends, which the configuration has already checked to exist. */
export function connectSites(config: Config, backends: ReadonlyMap<string, Backend>): Sites {
  const sites = new Map<string, Site>();
  for (const [id, { retention, logs }] of Object.entries(config.sites)) {
    const store = logs && backends.get(logs.backend)?.stores.logs;
    if (logs === undefined || store === undefined) {
      sites.set(id, { id, retention });
      continue;
    }
    const sources = new Map(
      Object.entries(logs.sources).map(([source, entry]) => [source, { id: source, ...entry }]),
    );
    sites.set(id, { id, retention, logs: { backend: logs.backend, store, sources } });
  }
  return sites;
}
