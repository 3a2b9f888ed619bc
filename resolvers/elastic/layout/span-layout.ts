// A span profile is a layout of spans as data: which documents hold spans and which hold events of spans, and where each
// part of them lies. The built-in ones are YAML files in `layouts/traces/`; a user's own is a file of the same form.
// Names are paths whose dots may be nesting or part of a key. A name that begins with `span_attributes.`,
// `resource_attributes.` or `event_attributes.` is a key of those attributes, as they are answered.
import { parse } from "yaml";
import { z } from "zod";
import { spanKinds } from "../../../src/core/rows.ts";
import type { Product } from "../client/product.ts";
import { findField, type IndexGroup, type IndexMetadata, isDynamic } from "../mapping/mapping.ts";
import { nameSchema, namesSchema, nanosPerUnit, readBuiltIn } from "./layout-file.ts";

/** `date` is an ISO text, milliseconds since 1970, or the `<milliseconds>.<nanoseconds, unpadded>` of the collector. */
const units = ["date", "ms", "us", "ns"] as const;
export type TimeUnit = (typeof units)[number];
/** Nanoseconds of one; a date is sorted and counted as milliseconds. */
export const nanosPerTimeUnit: Readonly<Record<TimeUnit, bigint>> = {
  date: nanosPerUnit.ms,
  ms: nanosPerUnit.ms,
  us: nanosPerUnit.us,
  ns: nanosPerUnit.ns,
};
const timeSchema = z.strictObject({ field: nameSchema, unit: z.enum(units) });

const attributeSourceSchema = z.union([
  /**
   * What lies below a prefix. `dot` is how keys spell their dots; `spelling` what stands for several characters, so that
   * only keys that are `knownProduct`, or that the site's configuration names, can be told.
   */
  z.strictObject({
    prefix: nameSchema,
    dot: nameSchema.optional(),
    spelling: nameSchema.optional(),
    known: z.array(nameSchema).readonly().default([]),
    keep: z.boolean().default(false),
    except: z.array(nameSchema).readonly().default([]),
  }),
  /** A list of `{ key, type, value }`, where `type` says what a text stands for. */
  z.strictObject({ pairs: nameSchema }),
  /** Attributes that the layout has fields of its own for. */
  z.strictObject({ named: z.record(nameSchema, namesSchema) }),
]);
export type AttributeSource = z.infer<typeof attributeSourceSchema>;
/** Where two sources have a key, the first counts. `omit` leaves out what other fields of a span already tell. */
const attributesSchema = z.strictObject({
  from: z.array(attributeSourceSchema).min(1).readonly(),
  omit: z.array(nameSchema).readonly().default([]),
});
export type AttributeSources = z.infer<typeof attributesSchema>;

/** The value of `createField` by `values`, or as the field spells it; `value` where the field is there at all. */
function buildRuleSchema<T extends z.ZodType<string>>(target: T) {
  return z.strictObject({
    field: nameSchema.optional(),
    values: z.record(z.string(), target).optional(),
    value: target.optional(),
  });
}
/** In order: the first that gives something counts. */
function buildRulesSchema<T extends z.ZodType<string>>(target: T) {
  return z.array(buildRuleSchema(target)).min(1).readonly();
}
/** With `omit`, the attribute that it looks at is left out where it says no more than the status that came out. */
const statusRulesSchema = z
  .array(buildRuleSchema(z.enum(["OK", "ERROR", "UNSET"])).extend({ omit: z.boolean().default(false) }))
  .min(1)
  .readonly();
export interface ValueRule {
  readonly field?: string | undefined;
  readonly values?: Readonly<Record<string, string>> | undefined;
  readonly value?: string | undefined;
  readonly omit?: boolean | undefined;
}

const eventsSchema = z.strictObject({
  at: nameSchema,
  time: timeSchema,
  name: buildRulesSchema(nameSchema),
  event_attributes: attributesSchema,
});
const linksSchema = z.strictObject({
  at: nameSchema,
  trace_id: nameSchema,
  span_id: nameSchema,
  trace_state: nameSchema.optional(),
  attributes: attributesSchema.optional(),
});

/** OpenTelemetry's names, the newer before the older, in the order that the contract gives ("Tracing"). */
const peerNames = [
  "service.peer.name",
  "peer.service",
  "server.address",
  "net.peer.name",
  "db.system.name",
  "db.system",
  "db.namespace",
  "db.name",
  "messaging.destination.name",
  "messaging.destination",
].map((key) => `span_attributes.${key}`);
const statementNames = ["db.query.text", "db.statement", "sql.query"].map((key) => `span_attributes.${key}`);

const textsSchema = z.record(z.string(), z.string());

const spanFormSchema = z
  .strictObject({
    holds: z.literal("span"),
    /** Names that each of these documents has. An index that maps them all may hold such documents. */
    present: namesSchema,
    trace_id: namesSchema,
    span_id: namesSchema,
    parent: namesSchema,
    /**
     * Where a document may name its parent in a list of references only: the first of `where` into its own trace, else
     * of `otherwise` into it, else of `where` into another. The latter two are links as well.
     */
    parent_reference: z
      .strictObject({
        at: nameSchema,
        where: textsSchema,
        otherwise: textsSchema.optional(),
        trace_id: nameSchema,
        span_id: nameSchema,
      })
      .optional(),
    trace_state: namesSchema.optional(),
    /** Where there are an end and a duration, a span begins that long before its end, and this counts without them. */
    start: timeSchema,
    end: timeSchema.optional(),
    duration: timeSchema.optional(),
    name: namesSchema,
    kind: buildRulesSchema(z.enum(spanKinds)),
    status: statusRulesSchema,
    status_message: namesSchema.optional(),
    service: namesSchema,
    scope_name: namesSchema.optional(),
    scope_version: namesSchema.optional(),
    revision: namesSchema.default([
      "resource_attributes.service.version",
      "resource_attributes.appsignal.config.revision",
    ]),
    span_attributes: attributesSchema,
    resource_attributes: attributesSchema,
    events: eventsSchema.optional(),
    links: linksSchema.optional(),
    /** Whether these are requests; by default one without a parent, or of kind server or consumer, is. */
    entry: z.enum(["always", "never"]).optional(),
    /** How many equal spans one stands for. */
    count: nameSchema.optional(),
    /** How long these took together. */
    sum: timeSchema.optional(),
    statement: namesSchema.default(statementNames),
    peer: namesSchema.default(peerNames),
  })
  .refine((form) => form.end !== undefined || form.duration !== undefined, "expected end or duration");
export type SpanForm = z.infer<typeof spanFormSchema>;

const eventFormSchema = z.strictObject({
  holds: z.literal("event"),
  present: namesSchema,
  /** Whether these lie in indices without spans: spans may have what tells them. */
  apart: z.boolean().default(false),
  trace_id: namesSchema,
  /** The span that it belongs to: the first of these that is a span of the trace. */
  span: namesSchema,
  time: timeSchema,
  name: buildRulesSchema(nameSchema),
  event_attributes: attributesSchema,
  /** What the document is where there is no such span: one of its own, which is no request. */
  alone: spanFormSchema.optional(),
});
export type EventForm = z.infer<typeof eventFormSchema>;

/** The attributes of a span that a name leads to, and the key in them; undefined for a name of the document itself. */
export function findNamedAttribute(
  form: SpanForm,
  name: string,
): { readonly attributes: AttributeSources; readonly key: string } | undefined {
  for (const part of ["span_attributes", "resource_attributes"] as const) {
    if (name.startsWith(`${part}.`)) return { attributes: form[part], key: name.slice(part.length + 1) };
  }
  return undefined;
}

/** Where an event names its trace, or what stands for one where it has none. */
export function listEventTraceNames({ trace_id, alone }: EventForm): readonly string[] {
  return alone?.trace_id ?? trace_id;
}

const layoutFileSchema = z.object({
  name: nameSchema,
  traces: z.strictObject({
    documents: z
      .array(z.union([spanFormSchema, eventFormSchema]))
      .min(1)
      .readonly(),
    /** What the layout cannot carry, for `readout check`. */
    lacks: z.array(z.string()).readonly().default([]),
    /** A pattern of indices that hold the spans of others a second time. */
    copies: z.string().optional(),
  }),
});

export interface SpanLayout {
  readonly name: string;
  readonly spans: readonly SpanForm[];
  readonly events: readonly EventForm[];
  readonly lacks: readonly string[];
  readonly copies?: string | undefined;
}

/** @throws {ZodError} @throws {YAMLParseError} */
export function parseSpanLayout(text: string): SpanLayout {
  const { name, traces } = layoutFileSchema.parse(parse(text));
  return {
    name,
    spans: traces.documents.filter((form) => form.holds === "span"),
    events: traces.documents.filter((form) => form.holds === "event"),
    lacks: traces.lacks,
    copies: traces.copies,
  };
}

/** The built-in profiles, in the order in which `auto` tries them. */
export const spanLayouts = readBuiltIn("layouts/traces/", parseSpanLayout);

/** Indices of one mapping, and what of the layout they may hold. */
export interface PlacedForm<Form> {
  readonly layout: string;
  readonly group: IndexGroup;
  readonly form: Form;
  /** As `Product.listsIgnored`, of this group. */
  readonly listsIgnored: boolean;
}
export interface PlacedForms {
  readonly layouts: readonly SpanLayout[];
  readonly spans: readonly PlacedForm<SpanForm>[];
  readonly events: readonly PlacedForm<EventForm>[];
  /** Indices that hold nothing of any profile. */
  readonly unrecognised: readonly IndexGroup[];
  /** Of indices that spell the dots of attributes otherwise than their form reads them, a field that shows it. */
  readonly misspeltFields: readonly string[];
  /** What an index may hold as soon as a document brings the names that its mapping lacks. */
  readonly possibleForms: readonly PlacedForm<SpanForm | EventForm>[];
}

/**
 * Which documents lie in which indices. One pattern may hold several layouts: each group of indices follows the first
 * profile with a form that its mapping has every `present` name of.
 */
export function placeForms(
  knowledge: IndexMetadata,
  candidates: readonly SpanLayout[],
  product: Product,
): PlacedForms {
  const found = new Set<SpanLayout>();
  const spans: PlacedForm<SpanForm>[] = [];
  const events: PlacedForm<EventForm>[] = [];
  const strange: IndexGroup[] = [];
  const growing: PlacedForm<SpanForm | EventForm>[] = [];
  for (const group of knowledge.groups) {
    const fits = (form: SpanForm | EventForm) =>
      form.present.every((name) => findField(group, name) !== undefined);
    const mayFit = (form: SpanForm | EventForm) =>
      !fits(form) &&
      form.present.every((name) => findField(group, name) !== undefined || isDynamic(group, name));
    const layout = candidates.find((candidate) => [...candidate.spans, ...candidate.events].some(fits));
    const isElsewhere = (form: SpanForm | EventForm) =>
      form.holds === "event" && form.apart && layout?.spans.some(fits) === true;
    const listsIgnored = product.listsIgnored && group.createdSince715;
    for (const { name, spans, events } of layout === undefined ? candidates : [layout]) {
      for (const form of [...spans, ...events])
        if (mayFit(form) && !isElsewhere(form)) growing.push({ layout: name, group, form, listsIgnored });
    }
    if (layout === undefined) {
      strange.push(group);
      continue;
    }
    found.add(layout);
    for (const form of layout.spans)
      if (fits(form)) spans.push({ layout: layout.name, group, form, listsIgnored });
    for (const form of layout.events)
      if (fits(form) && !isElsewhere(form)) events.push({ layout: layout.name, group, form, listsIgnored });
  }
  return {
    layouts: [...found],
    spans,
    events,
    unrecognised: strange,
    misspeltFields: spans.flatMap(findMisspeltFields),
    possibleForms: growing,
  };
}

/**
 * What writes an index may be told to spell dots as anything: a field `tag.span#kind` where the form reads `tag.span@kind`
 * shows that. One is enough, unless another shows that dots are spelt as the form reads them, because an attribute may
 * have such a name by itself.
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
      const spelt = keys.find((name) =>
        known.some((parts) => isJoinedOtherwise(name.slice(prefix.length), parts)),
      );
      return spelt === undefined ? [] : [spelt];
    }),
  );
}

export function describeMisspelt(field: string): string {
  return `attributes that spell their dots as ${field} does, which needs a profile of its own`;
}

/** Whether the parts are joined by one text, whichever it is but a dot: a key that has its own dots is read as it is. */
function isJoinedOtherwise(key: string, parts: readonly string[]): boolean {
  const [first = "", second = ""] = parts;
  const end = key.indexOf(second, first.length + 1);
  const dot = key.slice(first.length, Math.max(end, first.length));
  return dot !== "" && dot !== "." && key === parts.join(dot);
}
