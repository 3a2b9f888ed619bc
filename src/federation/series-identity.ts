// Which series of several places are one: those whose labels are equal, with the labels that their places force.
//
// A label that one place forces is no tag there. Another place may have it as a tag, or not at all: external labels of a
// Prometheus are not on its own answers. Such a series has whichever value other places force.
import type { SeriesQuery, Tags } from "../store/metrics.ts";
import { dropReplica, formatTagsKey, type MetricPlace } from "./metric-places.ts";

export interface IdentifiedPlace extends MetricPlace {
  /** Series of two places may be one where they have a key in common. Two of one place are one where their tags are equal. */
  readonly listKeys: (tags: Tags) => readonly string[];
  /** What the same series has as tags in every place. */
  readonly dropForced: (tags: Tags) => Tags;
}

export function identifyPlaces(places: readonly MetricPlace[]): readonly IdentifiedPlace[] {
  const valuesOf = collectForcedValues(places);
  const dropForced = (tags: Tags): Tags =>
    Object.fromEntries(Object.entries(tags).filter(([key]) => !valuesOf.has(key)));
  const listKeys = (place: MetricPlace, tags: Tags): readonly string[] => {
    let forms: readonly Tags[] = [dropReplica(place, { ...place.match, ...tags })];
    for (const [label, values] of valuesOf) {
      forms = forms.flatMap((form) =>
        Object.hasOwn(form, label) ? form : [...values].map((value) => ({ ...form, [label]: value })),
      );
    }
    return forms.map(formatTagsKey);
  };
  return places.map((place) => ({ ...place, listKeys: (tags) => listKeys(place, tags), dropForced }));
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
