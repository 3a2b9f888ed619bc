// Which series of several places are one: those whose labels are equal, with the labels that their places force.
//
// A label that one place forces is no tag there. Another place may have it as a tag, or not at all: external labels of a
// Prometheus are not on its own answers. Such a series has whichever value other places force.
import { createUnsupportedError, type Refused } from "../core/errors.ts";
import type { SeriesQuery, Tags } from "../store/metrics.ts";
import { dropReplica, formatTagsKey, type MetricPlace } from "./metric-places.ts";

export interface IdentifiedPlace extends MetricPlace {
  /**
   * Series of two places may be one where they have a key in common. Two of one place are one where their tags are equal.
   * @throws {Refused} where a series lacks labels that other places force in very many combinations
   */
  readonly listKeys: (tags: Tags) => readonly string[];
  /** What the same series has as tags in every place. */
  readonly dropForced: (tags: Tags) => Tags;
}

export function identifyPlaces(places: readonly MetricPlace[]): readonly IdentifiedPlace[] {
  const valuesOf = collectForcedValues(places);
  const dropForced = (tags: Tags): Tags =>
    Object.fromEntries(Object.entries(tags).filter(([key]) => !valuesOf.has(key)));
  const listKeys = (place: MetricPlace, tags: Tags): readonly string[] => {
    const own = dropReplica(place, { ...place.match, ...tags });
    const missing = [...valuesOf].filter(([label]) => !Object.hasOwn(own, label));
    const keys = missing.reduce((product, [, values]) => product * values.size, 1);
    if (keys > maxKeys)
      throw createManyValuesError(
        place,
        missing.map(([label]) => label),
        keys,
      );
    let forms: readonly Tags[] = [own];
    for (const [label, values] of missing)
      forms = forms.flatMap((form) => [...values].map((value) => ({ ...form, [label]: value })));
    return forms.map(formatTagsKey);
  };
  return places.map((place) => ({ ...place, listKeys: (tags) => listKeys(place, tags), dropForced }));
}

/** Of one series. */
const maxKeys = 128;

function createManyValuesError(
  { backend }: MetricPlace,
  labels: readonly string[],
  keys: number,
): Refused<"not_supported_by_backend"> {
  const feature = `series that lack ${labels.join(", ")}, whose values in other backends are ${keys} combinations. Name these labels in the \`match\` of ${backend}`;
  return createUnsupportedError(backend, feature);
}

function collectForcedValues(places: readonly MetricPlace[]): ReadonlyMap<string, ReadonlySet<string>> {
  const valuesOf = new Map<string, Set<string>>();
  for (const place of places) {
    for (const [label, value] of Object.entries(dropReplica(place, place.match)))
      valuesOf.set(label, (valuesOf.get(label) ?? new Set()).add(value));
  }
  return valuesOf;
}

/** Finds the series that the query selects in any place, also by tags that this place forces. */
export function toPastQuery({ match, dropForced }: IdentifiedPlace, query: SeriesQuery): SeriesQuery {
  return { ...query, match, tags: dropForced(query.tags) };
}
