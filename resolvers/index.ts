// The list of backend kinds, the only one, and the loader of those that a configuration adds.
import type { BackendKind, CustomLayouts } from "../src/store/backend.ts";
import { elastic } from "./elastic/elastic.ts";
import { memory } from "./memory/memory.ts";
import { prometheus } from "./prometheus/prometheus.ts";

export { loadOwnKind } from "./own-kinds.ts";

/** By name: the values of `kind:` in readout.yaml. */
export const kinds: ReadonlyMap<string, BackendKind<unknown>> = new Map([
  register(elastic),
  register(memory),
  register(prometheus),
]);

/** Erases the types of a kind's settings and layouts: its `create` only receives what its own parsers returned. */
function register<Config, Logs, Traces>(
  kind: BackendKind<Config, Logs, Traces>,
): readonly [string, BackendKind<unknown>] {
  const create: BackendKind<unknown>["create"] = (name, config, io, own) =>
    kind.create(name, config as Config, io, own as CustomLayouts<Logs, Traces> | undefined);
  return [kind.kind, { ...kind, create }];
}
