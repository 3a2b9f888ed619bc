// Which series of several places are one: those whose labels are equal, with the labels that their places force.
//
// A label that one place forces is no tag there. Another place may have it as a tag, or not at all: external labels of a
// Prometheus are not on its own answers. Such a series has whichever value other places force.
import { createUnsupportedError } from "../core/errors.ts";
import type { MemberReader, SeriesQuery, Tags } from "../store/metrics.ts";
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

/** One whose series can be merged with those of others. */
export interface ReadablePlace extends IdentifiedPlace {
  readonly members: MemberReader;
}

export function identifyPlaces(places: readonly MetricPlace[]): readonly IdentifiedPlace[] {
  const forced = places.map((place) => dropReplica(place, place.match));
  const valuesOf = collectValues(forced);
  const labelsOfAll = [...valuesOf.keys()];
  const dropForced = (tags: Tags): Tags =>
    Object.fromEntries(Object.entries(tags).filter(([key]) => !valuesOf.has(key)));
  return places.map((place, at) => {
    const others = deduplicateTags(forced.filter((_, other) => other !== at));
    const listKeys = (tags: Tags): readonly string[] => {
      const own = dropReplica(place, { ...place.match, ...tags });
      if (labelsOfAll.every((label) => Object.hasOwn(own, label))) return [formatTagsKey(own)];
      // As it may be in each other place, where the labels that are forced have one value.
      const forms = others.flatMap((labels) => completeTags(place, { ...labels, ...own }, valuesOf));
      return [...new Set([own, ...forms].map(formatTagsKey))];
    };
    return { ...place, listKeys, dropForced };
  });
}

/** Places that differ in their scraper alone force the same labels: a series has one form in all of them. */
function deduplicateTags(all: readonly Tags[]): readonly Tags[] {
  return [...new Map(all.map((tags) => [formatTagsKey(tags), tags])).values()];
}

function collectValues(all: readonly Tags[]): ReadonlyMap<string, ReadonlySet<string>> {
  const valuesOf = new Map<string, Set<string>>();
  for (const [label, value] of all.flatMap(Object.entries<string>))
    valuesOf.set(label, (valuesOf.get(label) ?? new Set()).add(value));
  return valuesOf;
}

/** Of one series, as it may be in one other place. */
const maxForms = 128;

/** With each value of each label that is missing. @throws {Refused} */
function completeTags(
  { backend }: MetricPlace,
  tags: Tags,
  valuesOf: ReadonlyMap<string, ReadonlySet<string>>,
): readonly Tags[] {
  const missing = [...valuesOf].filter(([label]) => !Object.hasOwn(tags, label));
  const count = missing.reduce((product, [, values]) => product * values.size, 1);
  if (count > maxForms) {
    const labels = missing.map(([label]) => label).join(", ");
    const feature = `series of several backends that lack ${labels}, of which others name values with ${count} combinations in \`match\``;
    throw createUnsupportedError(backend, feature);
  }
  let forms: readonly Tags[] = [tags];
  for (const [label, values] of missing)
    forms = forms.flatMap((form) => [...values].map((value) => ({ ...form, [label]: value })));
  return forms;
}

/** The query at this place, without the tags that some place forces: it finds what the query selects in any of them. */
export function dropForcedTags({ match, dropForced }: IdentifiedPlace, query: SeriesQuery): SeriesQuery {
  return { ...query, match, tags: dropForced(query.tags) };
}
