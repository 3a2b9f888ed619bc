// The only list of kinds of backends.
import type { BackendKind } from "../src/store.ts";
import { elastic } from "./elastic/elastic.ts";
import { memory } from "./memory/memory.ts";
import { prometheus } from "./prometheus/prometheus.ts";

/** What `kind:` in readout.yaml may be. */
export const kinds: ReadonlyMap<string, BackendKind<unknown>> = new Map([
  register(elastic),
  register(memory),
  register(prometheus),
]);

/** A kind whose settings are known to itself alone: what its `parseConfig` made is what its `create` gets. */
function register<Config>(kind: BackendKind<Config>): readonly [string, BackendKind<unknown>] {
  const create: BackendKind<unknown>["create"] = (name, config, io) =>
    kind.create(name, config as Config, io);
  return [kind.kind, { ...kind, create }];
}
