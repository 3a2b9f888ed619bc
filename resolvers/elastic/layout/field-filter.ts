// Which fields of a mapping may change how spans are found and read: all but attributes that no code reads by name. Applications
// bring new attributes all the time, and figures that are kept do not depend on these.
import { errorReportAttribute } from "../../../src/core/rows.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import { incidentDigestAttribute } from "../../../src/tracing/spans/requests.ts";
import { lossyCharacters } from "./attribute-decoder.ts";
import type { SpanLayout } from "./span-layout.ts";

/** The keys of attributes below a prefix, and how they are spelled there. */
interface Container {
  readonly prefix: string;
  readonly dot: string;
  /** What stands for several characters. */
  readonly spelling: string | undefined;
}

/** Whether a field, by its name in the index, may matter to any of the sources. `listLayouts` are those that a source may have. */
export function createFieldFilter(
  sources: readonly SpanSource[],
  listLayouts: (source: SpanSource) => readonly SpanLayout[],
): (field: string) => boolean {
  const containers = new Map<string, Container>();
  const names = new Set([errorReportAttribute, incidentDigestAttribute]);
  for (const source of sources) {
    names.add(source.namespaceAttribute).add(source.actionAttribute);
    const filtered = listFilterWords(source.tenantFilter);
    if (filtered === undefined) return () => true;
    for (const word of filtered) names.add(word);
    for (const layout of listLayouts(source)) {
      for (const container of listContainers(layout)) containers.set(JSON.stringify(container), container);
      // One name more only makes the filter accept more.
      for (const text of listTexts(layout, (key) => key.endsWith("attributes")))
        names.add(text.replace(/^(?:span|resource|event)_attributes\./, ""));
    }
  }
  const filters = [...containers.values()].map(({ prefix, dot, spelling }) => {
    const spelled =
      spelling === undefined
        ? names
        : new Set([...names].map((name) => name.replace(lossyCharacters, spelling)));
    const isNamed = createNameFilter(spelled);
    return { prefix, isRead: (field: string) => isNamed(field.slice(prefix.length).replaceAll(dot, ".")) };
  });
  const isNamed = createNameFilter(names);
  return (field) => {
    const within = filters.filter(({ prefix }) => field.startsWith(prefix));
    return within.length === 0 || isNamed(field) || within.some(({ isRead }) => isRead(field));
  };
}

/** Whether a key is one of the names, lies below one, or has one below itself. */
function createNameFilter(names: ReadonlySet<string>): (key: string) => boolean {
  const parents = new Set([...names].flatMap(listParents));
  return (key) => names.has(key) || parents.has(key) || listParents(key).some((parent) => names.has(parent));
}

/** `a` and `a.b` for `a.b.c`. */
function listParents(name: string): readonly string[] {
  const parts = name.split(".");
  return parts.slice(1).map((_, at) => parts.slice(0, at + 1).join("."));
}

function listContainers({ spans, events }: SpanLayout): readonly Container[] {
  const attributes = [
    ...spans.flatMap((form) => [form.span_attributes, form.resource_attributes]),
    ...events.map((form) => form.event_attributes),
  ];
  return attributes.flatMap(({ from }) =>
    from.flatMap((source) => {
      if (!("prefix" in source) || source.keep) return [];
      const { prefix, dot = ".", spelling } = source;
      return [{ prefix, dot, spelling }];
    }),
  );
}

/** All keys and texts of a layout, but for those at keys that are left out. Some are not names of fields. */
export function listTexts(
  value: unknown,
  isLeftOut: (key: string) => boolean = () => false,
): readonly string[] {
  if (typeof value === "string") return [value];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, part]) =>
    isLeftOut(key) ? [] : [key, ...listTexts(part, isLeftOut)],
  );
}

/** The words of a tenant filter, among them all names; undefined where it has names of other characters. */
function listFilterWords(filter: string | undefined): readonly string[] | undefined {
  if (filter === undefined) return [];
  return /^[\w.@\s="'!<>():-]*$/.test(filter) ? (filter.match(/[\w.@-]+/g) ?? []) : undefined;
}
