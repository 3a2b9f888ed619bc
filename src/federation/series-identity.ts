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
  const forced = places.map((place) => dropReplica(place, place.match));
  const labels = new Set(forced.flatMap(Object.keys));
  const dropForced = (tags: Tags): Tags =>
    Object.fromEntries(Object.entries(tags).filter(([key]) => !labels.has(key)));
  // As it is in each place that could have it: one key for each place at most, however many labels they force.
  const listKeys = (place: MetricPlace, tags: Tags): readonly string[] => {
    const own = dropReplica(place, { ...place.match, ...tags });
    return [...new Set(forced.map((others) => formatTagsKey({ ...others, ...own })))];
  };
  return places.map((place) => ({ ...place, listKeys: (tags) => listKeys(place, tags), dropForced }));
}

/** Finds the series that the query selects in any place, also by tags that this place forces. */
export function toPastQuery({ match, dropForced }: IdentifiedPlace, query: SeriesQuery): SeriesQuery {
  return { ...query, match, tags: dropForced(query.tags) };
}
