// The rollers of a configuration: one for each backend whose spans have figures kept at a source. Without `rollups` there is none.
// What they make follows from the configuration alone, and never from what is asked: for each site the figures that each of its
// tokens may ask for.
import { createSiteViews, type Sites } from "../../access/sites.ts";
import type { Config } from "../../config/config.ts";
import type { RollupsConfig } from "../../config/rollup-settings.ts";
import type { Scope } from "../../core/scopes.ts";
import type { Instant } from "../../core/time.ts";
import { selectPartners } from "../../operations/traces/analytics.ts";
import type { Backend } from "../../store/backend.ts";
import type { RollupStore } from "../../store/rollups.ts";
import type { SpanStore } from "../../store/span-analytics.ts";
import type { SpanSource } from "../../store/spans.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";
import { createRollTargets, type RolledSite } from "../../tracing/figures/roll-targets.ts";
import { type RolledMeasure, type RollerSettings, runRoller } from "../../tracing/rollup-store/roller.ts";
import { createMeasureSums } from "./rolled-measures.ts";

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
  telemetry: Pick<Telemetry, "log" | "recordRolled">,
  now: () => Instant,
  signal: AbortSignal,
): Promise<void> {
  const { rollups } = config;
  if (rollups === undefined || store === undefined) return;
  const rollers = listRollers(config, rollups, sites, { store, telemetry, now });
  await Promise.all(rollers.map((roller) => runRoller(roller, signal)));
}

function listRollers(
  config: Config,
  { rate }: RollupsConfig,
  sites: Sites,
  {
    store,
    telemetry,
    now,
  }: {
    readonly store: RollupStore;
    readonly telemetry: Pick<Telemetry, "log" | "recordRolled">;
    readonly now: () => Instant;
  },
): readonly RollerSettings[] {
  const addUp = createMeasureSums();
  const record = (measure: RolledMeasure) => telemetry.recordRolled(addUp(measure, now()));
  return [...groupByBackend(config, sites)].map(([backend, own]) => ({
    ...{ backend, store, rate, now, record, log: telemetry.log },
    targets: own.flatMap(({ reader, site }) => createRollTargets(reader, site)),
  }));
}

interface OwnedSite {
  readonly reader: SpanStore;
  readonly site: RolledSite;
}

/** Sites in several backends are left out: nobody holds one moment of all of them. */
function groupByBackend(config: Config, sites: Sites): ReadonlyMap<string, readonly OwnedSite[]> {
  const views = listViews(config, sites);
  const owned = new Map<string, OwnedSite[]>();
  for (const { id, retention, traces } of sites.values()) {
    if (traces === undefined || traces.backends !== undefined || traces.store.openSnapshot === undefined)
      continue;
    const partners = views.flatMap((view): readonly (readonly SpanSource[])[] => {
      if (view.get(id)?.traces === undefined) return [];
      const selected = selectPartners(id, traces, { sites: view });
      return selected.store === traces.store ? [selected.partners] : [];
    });
    const site: RolledSite = { source: traces.source, retention, views: partners };
    const known = owned.get(traces.backend);
    if (known === undefined) owned.set(traces.backend, [{ reader: traces.store, site }]);
    else known.push({ reader: traces.store, site });
  }
  return owned;
}

/** What the tokens of the file, and each group of an identity provider, may see. */
function listViews({ tokens, jwtIssuers = [] }: Config, sites: Sites): readonly Sites[] {
  const viewOf = createSiteViews(sites);
  const seen = [
    ...tokens.map((token) => ({ sites: token.sites, scopes: token.scopes })),
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
