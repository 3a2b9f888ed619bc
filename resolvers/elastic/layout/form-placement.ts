// Places the forms of span layouts: which documents of a layout lie in which indices of a pattern, by the mappings.
import { requireAt } from "../../../src/core/collections.ts";
import type { Product } from "../client/product.ts";
import { findField, type IndexGroup, type IndexMetadata, isDynamic } from "../mapping/mapping.ts";
import type { EventForm, SpanForm, SpanLayout } from "./span-layout.ts";

type Form = SpanForm | EventForm;

/** A form of documents that the indices of one group may hold. */
export interface PlacedForm<Form> {
  /** The name of the layout. */
  readonly layout: string;
  readonly group: IndexGroup;
  readonly form: Form;
  /** `Product.listsIgnored` for this group. */
  readonly listsIgnored: boolean;
}

export interface PlacedForms {
  /** The layouts that were found. */
  readonly layouts: readonly SpanLayout[];
  readonly spans: readonly PlacedForm<SpanForm>[];
  readonly events: readonly PlacedForm<EventForm>[];
  /** Index groups with no form of any layout. */
  readonly unrecognised: readonly IndexGroup[];
  /** Fields which show that an index spells the dots of attributes otherwise than its form. */
  readonly misspeltFields: readonly string[];
  /** Forms that an index may hold as soon as a document adds the missing names to its mapping. */
  readonly possibleForms: readonly PlacedForm<Form>[];
}

/**
 * Places the forms of `candidates`. One pattern may hold several layouts: each index group has the first layout with a form all
 * of whose `present` names it maps.
 */
export function placeForms(
  metadata: IndexMetadata,
  candidates: readonly SpanLayout[],
  product: Product,
): PlacedForms {
  const layouts = new Set<SpanLayout>();
  const spans: PlacedForm<SpanForm>[] = [];
  const events: PlacedForm<EventForm>[] = [];
  const unrecognised: IndexGroup[] = [];
  const possibleForms: PlacedForm<Form>[] = [];
  for (const group of metadata.groups) {
    const layout = candidates.find(({ spans, events }) =>
      [...spans, ...events].some((form) => hasPresentNames(group, form)),
    );
    const listsIgnored = product.listsIgnored && group.createdSince715;
    const place = <T extends Form>(name: string, form: T): PlacedForm<T> => {
      return { layout: name, group, form, listsIgnored };
    };
    for (const { name, spans, events } of layout === undefined ? candidates : [layout]) {
      const possible = [...spans, ...events].filter(
        (form) => mayGetPresentNames(group, form) && !isHeldApart(group, form, layout),
      );
      possibleForms.push(...possible.map((form) => place(name, form)));
    }
    if (layout === undefined) {
      unrecognised.push(group);
      continue;
    }
    layouts.add(layout);
    spans.push(
      ...layout.spans.filter((form) => hasPresentNames(group, form)).map((form) => place(layout.name, form)),
    );
    events.push(
      ...layout.events
        .filter((form) => hasPresentNames(group, form) && !isHeldApart(group, form, layout))
        .map((form) => place(layout.name, form)),
    );
  }
  return {
    layouts: [...layouts],
    spans,
    events,
    unrecognised,
    misspeltFields: spans.flatMap(findMisspeltFields),
    possibleForms,
  };
}

function hasPresentNames(group: IndexGroup, form: Form): boolean {
  return form.present.every((name) => findField(group, name) !== undefined);
}

/** Whether later documents may add the missing `present` names to the mapping. */
function mayGetPresentNames(group: IndexGroup, form: Form): boolean {
  return (
    !hasPresentNames(group, form) &&
    form.present.every((name) => findField(group, name) !== undefined || isDynamic(group, name))
  );
}

/** Whether the form's events lie in indices without spans, and this group holds spans. */
function isHeldApart(group: IndexGroup, form: Form, layout: SpanLayout | undefined): boolean {
  if (form.holds !== "event" || !form.apart || layout === undefined) return false;
  return layout.spans.some((spanForm) => hasPresentNames(group, spanForm));
}

/**
 * A shipper may be configured to spell dots as any text: a field `tag.span#kind` where the form reads `tag.span@kind` shows that.
 * An attribute may have such a name by itself, so a field with dots spelled as the form reads them refutes it.
 */
function findMisspeltFields({ group, form }: PlacedForm<SpanForm>): readonly string[] {
  const { span_attributes, resource_attributes } = form;
  return [span_attributes, resource_attributes].flatMap(({ from, omit }) =>
    from.flatMap((source) => {
      if (!("prefix" in source) || source.dot === undefined) return [];
      const { prefix, dot } = source;
      const keys = [...group.fields.keys()].filter((name) => name.startsWith(prefix));
      if (keys.some((name) => name.includes(dot, prefix.length))) return [];
      const known = omit.filter((key) => key.includes(".")).map((key) => key.split("."));
      const misspelt = keys.find((name) =>
        known.some((segments) => isJoinedOtherwise(name.slice(prefix.length), segments)),
      );
      return misspelt === undefined ? [] : [misspelt];
    }),
  );
}

export function describeMisspelt(field: string): string {
  return `attributes that spell their dots as ${field} does, which needs a layout of its own`;
}

/** Whether the key is the segments joined by one text other than a dot: a key with its own dots is read as it is. */
function isJoinedOtherwise(key: string, segments: readonly string[]): boolean {
  const [first, second] = [requireAt(segments, 0), requireAt(segments, 1)];
  const end = key.indexOf(second, first.length + 1);
  const dot = key.slice(first.length, Math.max(end, first.length));
  return dot !== "" && dot !== "." && key === segments.join(dot);
}
