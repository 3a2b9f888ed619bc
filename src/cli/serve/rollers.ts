// The rollers of a configuration: one for each backend whose spans have figures kept at a source, and one for each set of backends
// that sites or their partners have together. Without `rollups` there is none.
// What they make follows from the configuration alone, and never from what is asked: for each site the figures that each of its
// tokens may ask for.
import { createSiteViews, type Site, type Sites } from "../../access/sites.ts";
import type { Config } from "../../config/config.ts";
import type { RollupsConfig } from "../../config/rollup-settings.ts";
import { requireFirst } from "../../core/collections.ts";
import type { Scope } from "../../core/scopes.ts";
import type { Instant } from "../../core/time.ts";
import { selectPartners } from "../../operations/traces/analytics.ts";
import type { Backend } from "../../store/backend.ts";
import type { RollupStore } from "../../store/rollups.ts";
import type { SpanReader, SpanSources } from "../../store/spans.ts";
import type { KeptTelemetry } from "../../telemetry/kept-telemetry.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";
import {
  createPartnerTargets,
  createSiteTargets,
  type RolledSource,
} from "../../tracing/figures/roll-targets.ts";
import type { RollTarget } from "../../tracing/rollup-store/roll-target.ts";
import { type RolledMeasure, type RollerSettings, runRoller } from "../../tracing/rollup-store/roller.ts";
import { createMeasureSums } from "./rolled-measures.ts";

type RollerTelemetry = Pick<Telemetry, "log"> & Pick<KeptTelemetry, "recordRolled">;

/** The store that the configuration names, where its backend can hold one. */
export function openRollupStore(
  { rollups }: Pick<Config, "rollups">,
  backends: ReadonlyMap<string, Backend>,
): RollupStore | undefined {
  return rollups && backends.get(rollups.backend)?.openRollups?.(rollups.index);
}

/** Makes figures until the signal is aborted. Never rejects. */
export async function runRollers(
  { config, sites }: { readonly config: Config; readonly sites: Sites },
  store: RollupStore | undefined,
  telemetry: RollerTelemetry,
  now: () => Instant,
  signal: AbortSignal,
): Promise<void> {
  const { rollups } = config;
  if (rollups === undefined || store === undefined) return;
  const rollers = listRollers(config, rollups, sites, { store, telemetry, now });
  await Promise.all(rollers.map((roller) => runRoller(roller, signal)));
}

/** Those of a configuration with `rollups`. */
export function listRollers(
  config: Config,
  { rate }: RollupsConfig,
  sites: Sites,
  {
    store,
    telemetry,
    now,
  }: {
    readonly store: RollupStore;
    readonly telemetry: RollerTelemetry;
    readonly now: () => Instant;
  },
): readonly RollerSettings[] {
  const addUp = createMeasureSums();
  const record = (measure: RolledMeasure) => telemetry.recordRolled(addUp(measure, now()));
  const all = groupByBackends(listTargets(config, sites));
  return all.map(({ backends, targets }) => ({
    backend: backends.join(", "),
    targets,
    store,
    now,
    record,
    log: telemetry.log,
    rate: rate / countMostRollers(backends, all),
  }));
}

/** Rollers that read one backend work at the same time, so they divide the rate. */
function countMostRollers(backends: readonly string[], all: readonly TargetsOfRoller[]): number {
  return Math.max(...backends.map((name) => all.filter((other) => other.backends.includes(name)).length));
}

/** What one roller makes, and the backends that it reads, in the order of their names. */
interface TargetsOfRoller {
  readonly backends: readonly string[];
  readonly targets: readonly RollTarget[];
}

/** A roller reads all backends of its targets, so that one that does not answer stops no figures of others. */
function groupByBackends(all: readonly TargetsOfRoller[]): readonly TargetsOfRoller[] {
  return [...Map.groupBy(all, ({ backends }) => JSON.stringify(backends)).values()].map((own) => {
    const targets = own.flatMap((one) => one.targets);
    // Several tokens may see the same partners.
    const byGroup = new Map(targets.map((target) => [target.group, target]));
    return { backends: requireFirst(own).backends, targets: [...byGroup.values()] };
  });
}

function listTargets(config: Config, sites: Sites): readonly TargetsOfRoller[] {
  const views = listViews(config, sites);
  const parts = [...sites.values()].flatMap(({ traces }) => traces ?? []);
  const backendsOf = new Map(parts.map((part) => [part.source, part.backends ?? [part.backend]]));
  const found: TargetsOfRoller[] = [];
  const add = (
    { retention }: Site,
    [source, ...partners]: SpanSources,
    reader: SpanReader,
    createTargets: (rolled: RolledSource) => readonly RollTarget[],
  ): void => {
    if (reader.openSnapshot === undefined) return;
    const named = [source, ...partners].flatMap((one) => backendsOf.get(one) ?? []);
    const backends = [...new Set(named)].sort();
    const rolled = { backend: backends.join(", "), reader, source, retention };
    found.push({ backends, targets: createTargets(rolled) });
  };
  for (const site of sites.values()) {
    const { id, traces } = site;
    if (traces === undefined) continue;
    add(site, [traces.source], traces.store, createSiteTargets);
    for (const view of views) {
      if (view.get(id)?.traces === undefined) continue;
      const { partners, store } = selectPartners(id, traces, { sites: view });
      add(site, [traces.source, ...partners], store, (rolled) => createPartnerTargets(rolled, partners));
    }
  }
  return found;
}

/** What the tokens and the users by certificates of the file, and each group of an identity provider, may see. */
function listViews({ tokens, certificates = [], jwtIssuers = [] }: Config, sites: Sites): readonly Sites[] {
  const viewOf = createSiteViews(sites);
  const seen = [
    ...[...tokens, ...certificates].map((entry) => ({ sites: entry.sites, scopes: entry.scopes })),
    ...jwtIssuers.flatMap(({ sites: claim }) =>
      Object.values("map" in claim ? claim.map : {}).map((own) => ({ sites: own, scopes: undefined })),
    ),
  ];
  return seen.map(({ sites: own, scopes }) =>
    viewOf({
      maySee: (id) => own === "*" || own.includes(id),
      hasScope: (scope: Scope) => scopes === undefined || scopes.includes(scope),
    }),
  );
}
