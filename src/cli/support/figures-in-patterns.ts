// Which patterns of spans have the index of figures among their indices. Answers are right then too, but each look at the pattern
// also proves what the roller has just written.
import type { Config, TracesPart } from "../../config/config.ts";
import { toMapping } from "../../config/plain-values.ts";
import { toPlaces } from "../../core/collections.ts";
import { hasIndex } from "./pattern-lists.ts";

/** Sentences, one for each site and pattern. Aliases are not known here. */
export function describeFiguresInPatterns({ rollups, backends, sites }: Config): readonly string[] {
  if (rollups === undefined) return [];
  const own = readAddresses(backends[rollups.backend]?.settings);
  const isSameCluster = ({ backend }: TracesPart): boolean =>
    backend === rollups.backend ||
    readAddresses(backends[backend]?.settings).some((address) => own.includes(address));
  return Object.entries(sites).flatMap(([site, { traces }]) =>
    toPlaces(traces ?? [])
      .filter((part) => isSameCluster(part) && hasIndex(part.index, rollups.index))
      .map(({ index }) => `it is among the indices of ${site}'s traces, ${index}: give it another name`),
  );
}

/** None for kinds whose settings have no address. */
function readAddresses(settings: unknown): readonly string[] {
  return [toMapping(settings).url].flat().flatMap((url) => {
    return typeof url === "string" && URL.canParse(url) ? [new URL(url).href.replace(/\/$/, "")] : [];
  });
}
