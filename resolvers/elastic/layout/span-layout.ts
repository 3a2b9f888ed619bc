// A span layout describes documents as data: which documents hold spans and which hold events of spans, and where each of their
// fields lies. The built-in layouts are YAML files in `layouts/traces/`; a user's own layout is a file of the same form.
// Names are paths whose dots may be nesting or part of a key. A name that begins with `span_attributes.`,
// `resource_attributes.` or `event_attributes.` is a key of those attributes, as the API returns them.
import { parse } from "yaml";
import { z } from "zod";
import { spanKinds } from "../../../src/core/rows.ts";
import { nameSchema, namesSchema, nanosPerUnit, readBuiltIn } from "./layout-file.ts";

/** `date` is an ISO text, milliseconds since 1970, or the collector's `<milliseconds>.<nanoseconds, unpadded>`. */
const timeUnitSchema = z.enum(["date", "ms", "us", "ns"]);
export type TimeUnit = z.infer<typeof timeUnitSchema>;
/** The nanoseconds in one unit; a date is sorted and counted as milliseconds. */
export const nanosPerTimeUnit: Readonly<Record<TimeUnit, bigint>> = {
  date: nanosPerUnit.ms,
  ms: nanosPerUnit.ms,
  us: nanosPerUnit.us,
  ns: nanosPerUnit.ns,
};
const timeSchema = z.strictObject({ field: nameSchema, unit: timeUnitSchema });
/** An instant; of documents without a readable one at `field` that of `otherwise`. */
const instantSchema = timeSchema.extend({ otherwise: timeSchema.optional() });
export type InstantRule = z.infer<typeof instantSchema>;
export type TimeRule = z.infer<typeof timeSchema>;
/** The times by which a document may be bounded, the first before those that stand in for it. */
export function listTimes({ otherwise, ...time }: InstantRule): readonly TimeRule[] {
  return otherwise === undefined ? [time] : [time, otherwise];
}

const durationSchema = z.strictObject({ field: nameSchema, unit: timeUnitSchema.exclude(["date"]) });

const attributeSourceSchema = z.union([
  /**
   * Everything below a prefix. `dot` is how keys spell their dots. `spelling` replaces several characters, so that only keys of
   * `known`, or those that the site's configuration names, can be restored. With `keep`, keys include the prefix.
   */
  z.strictObject({
    prefix: nameSchema,
    dot: nameSchema.optional(),
    spelling: nameSchema.optional(),
    known: z.array(nameSchema).readonly().default([]),
    keep: z.boolean().default(false),
    except: z.array(nameSchema).readonly().default([]),
  }),
  /** A list of `{ key, type, value }`, where `type` is the type of a value that is written as text. */
  z.strictObject({ pairs: nameSchema }),
  /** Attributes for which the layout has fields of its own: keys, and the names at which their values lie. */
  z.strictObject({ named: z.record(nameSchema, namesSchema) }),
]);
export type AttributeSource = z.infer<typeof attributeSourceSchema>;
/**
 * Where two sources have a key, the first counts. `omit` are keys that other fields of a span repeat. `frames` are named keys
 * whose values may be lists of stack frames, which become a text.
 */
const attributesSchema = z.strictObject({
  from: z.array(attributeSourceSchema).min(1).readonly(),
  frames: z.array(nameSchema).readonly().optional(),
  omit: z.array(nameSchema).readonly().default([]),
});
export type AttributeSources = z.infer<typeof attributesSchema>;

/** Yields the value of `field` by `values`, or as it is; or `value` if the field is present, or without a `field`. */
function buildRuleSchema<T extends z.ZodType<string>>(target: T) {
  return z.strictObject({
    field: nameSchema.optional(),
    values: z.record(z.string(), target).optional(),
    value: target.optional(),
  });
}
/** In order; the first rule that yields something counts. */
function buildRulesSchema<T extends ReturnType<typeof buildRuleSchema>>(rule: T) {
  return z
    .array(rule.refine(({ field, value }) => (field ?? value) !== undefined, "expected field or value"))
    .min(1)
    .readonly();
}
const nameRulesSchema = buildRulesSchema(buildRuleSchema(nameSchema));
const kindRulesSchema = buildRulesSchema(buildRuleSchema(z.enum(spanKinds)));
/** With `omit`, the attribute that the rule reads is left out if it only repeats the resulting status. */
const statusRulesSchema = buildRulesSchema(
  buildRuleSchema(z.enum(["OK", "ERROR", "UNSET"])).extend({ omit: z.boolean().default(false) }),
);

export interface ValueRule {
  readonly field?: string | undefined;
  readonly values?: Readonly<Record<string, string>> | undefined;
  readonly value?: string | undefined;
  readonly omit?: boolean | undefined;
}

const eventsSchema = z.strictObject({
  at: nameSchema,
  time: instantSchema,
  name: nameRulesSchema,
  event_attributes: attributesSchema,
});
const linksSchema = z.strictObject({
  at: nameSchema,
  trace_id: nameSchema,
  span_id: nameSchema,
  trace_state: nameSchema.optional(),
  attributes: attributesSchema.optional(),
});

/** OpenTelemetry's names, newer before older ones, in the order that the contract gives ("Tracing"). */
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
    /** Names that each document of the form has. An index that maps all of them may hold such documents. */
    present: namesSchema,
    trace_id: namesSchema,
    span_id: namesSchema,
    parent: namesSchema,
    /**
     * For documents that may name their parent in a list of references only. The parent is the first reference that matches
     * `where` within the span's own trace; else `otherwise` within it; else `where` in another trace. The latter two are links
     * as well.
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
    /** The start, unless there are an end and a duration: then a span starts that long before its end. */
    start: instantSchema,
    end: instantSchema.optional(),
    duration: durationSchema.optional(),
    name: namesSchema,
    kind: kindRulesSchema,
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
    /** Whether these spans are requests; by default those without a parent or of kind server or consumer are. */
    entry: z.enum(["always", "never"]).optional(),
    /** The number of equal spans that one document represents. */
    count: nameSchema.optional(),
    /** The total duration of these spans. */
    sum: durationSchema.optional(),
    statement: namesSchema.default(statementNames),
    peer: namesSchema.default(peerNames),
  })
  .refine((form) => form.end !== undefined || form.duration !== undefined, "expected end or duration");
export type SpanForm = z.infer<typeof spanFormSchema>;

const eventFormSchema = z.strictObject({
  holds: z.literal("event"),
  present: namesSchema,
  /** Whether these events lie only in indices without spans. Spans may have the `present` names too. */
  apart: z.boolean().default(false),
  trace_id: namesSchema,
  /** The id of the span that the event belongs to: the first of these names that is a span of the trace. */
  span: namesSchema,
  time: instantSchema,
  name: nameRulesSchema,
  event_attributes: attributesSchema,
  /** The form of the standalone span that the document is if there is no such span. It is no request. */
  alone: spanFormSchema.optional(),
});
export type EventForm = z.infer<typeof eventFormSchema>;

/** The attributes that a name belongs to, and its key in them; undefined for a name of the document itself. */
export function findNamedAttribute(
  form: SpanForm,
  name: string,
): { readonly attributes: AttributeSources; readonly key: string } | undefined {
  for (const part of ["span_attributes", "resource_attributes"] as const) {
    if (name.startsWith(`${part}.`)) return { attributes: form[part], key: name.slice(part.length + 1) };
  }
  return undefined;
}

/** The names at which an event has the id of its trace, or of its standalone span's trace. */
export function listEventTraceNames({ trace_id, alone }: EventForm): readonly string[] {
  return alone?.trace_id ?? trace_id;
}

const layoutFileSchema = z.object({
  name: nameSchema,
  traces: z.strictObject({
    documents: z
      .array(
        z.discriminatedUnion("holds", [spanFormSchema, eventFormSchema], {
          error: ({ code }) => (code === "invalid_union" ? "expected span or event" : undefined),
        }),
      )
      .min(1)
      .readonly(),
    /** What the layout cannot carry, for `readout check`. */
    lacks: z.array(z.string()).readonly().default([]),
    /** A pattern of indices that hold copies of spans of other indices. */
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

/** Reads the text of a layout file; `explain` words the issues. @throws {ZodError} @throws {YAMLParseError} */
export function parseSpanLayout(text: string, explain?: z.core.$ZodErrorMap): SpanLayout {
  const { name, traces } = layoutFileSchema.parse(parse(text), explain && { error: explain });
  return {
    name,
    spans: traces.documents.filter((form) => form.holds === "span"),
    events: traces.documents.filter((form) => form.holds === "event"),
    lacks: traces.lacks,
    copies: traces.copies,
  };
}

/** The built-in layouts by name, in the order in which `auto` tries them. */
export const spanLayouts = readBuiltIn("layouts/traces/", parseSpanLayout);
