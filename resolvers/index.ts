// The only list of kinds of backends.
import type { BackendKind, CustomLayouts } from "../src/store/store.ts";
import { elastic } from "./elastic/elastic.ts";
import { memory } from "./memory/memory.ts";
import { prometheus } from "./prometheus/prometheus.ts";

/** What `kind:` in readout.yaml may be. */
export const kinds: ReadonlyMap<string, BackendKind<unknown>> = new Map([
  register(elastic),
  register(memory),
  register(prometheus),
]);

/** A kind whose settings and layouts are known to itself alone: what it has parsed is what its `createDocuments` gets. */
function register<Config, Logs, Traces>(
  kind: BackendKind<Config, Logs, Traces>,
): readonly [string, BackendKind<unknown>] {
  const create: BackendKind<unknown>["create"] = (name, config, io, own) =>
    kind.create(name, config as Config, io, own as CustomLayouts<Logs, Traces> | undefined);
  return [kind.kind, { ...kind, create }];
}
