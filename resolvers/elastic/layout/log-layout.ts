// A log layout describes documents as data: which names hold the fields of a line, and where its body lies. The built-in layouts
// are YAML files in `layouts/logs/`; a user's own layout is a file of the same form. Names are paths whose dots may be nesting or
// part of a key.
import { parse } from "yaml";
import { z } from "zod";
import { type Severity, severities } from "../../../src/core/rows.ts";
import { buildNameTree, type NameTree } from "../document/hit-scanner.ts";
import { nameSchema, namesSchema, nanosPerUnit, readBuiltIn } from "./layout-file.ts";

/** A `date` or `date_nanos` field, or with a unit also a `long` field that counts from 1970 on. */
const timeFieldSchema = z.union([
  nameSchema.transform((field) => ({ field, unit: undefined })),
  z.strictObject({
    field: nameSchema,
    unit: z.enum(["s", "ms", "us", "ns"]).transform((unit): bigint | undefined => nanosPerUnit[unit]),
  }),
]);

/** In the order of syslog's severity codes. A syslog priority is eight times the facility plus this code. */
const syslogSeverities: readonly Severity[] = [
  "fatal",
  "alert",
  "critical",
  "error",
  "warn",
  "notice",
  "info",
  "debug",
];
const syslogPriorities: Readonly<Record<string, Severity>> = Object.fromEntries(
  Array.from({ length: 24 }, (_, facility) =>
    syslogSeverities.map((severity, code) => [String(8 * facility + code), severity] as const),
  ).flat(),
);

/**
 * How the value of a field gives the severity: by its text in any case; by `values`; or as a number by `at_least`, where the
 * greatest key that is not above the number counts.
 */
const severityRuleSchema = z.strictObject({
  field: nameSchema,
  values: z
    .union([
      z.literal("syslog-pri").transform(() => syslogPriorities),
      z.record(z.string(), z.enum(severities)),
    ])
    .optional(),
  at_least: z
    .record(z.string().regex(/^\d+$/, "expected a whole number as the key"), z.enum(severities))
    .transform((steps) =>
      Object.entries(steps)
        .map(([from, severity]) => ({ from: Number(from), severity }))
        .sort((a, b) => a.from - b.from),
    )
    .optional(),
  /** Whether the rule counts only in a document that has no value at the fields of the rules before it. */
  last_resort: z.boolean().optional(),
});
export type SeverityRule = z.infer<typeof severityRuleSchema>;

export interface TimeField {
  readonly field: string;
  /** The nanoseconds in one unit of a number; undefined for a date. */
  readonly unit: bigint | undefined;
}

const prefixSchema = nameSchema.endsWith(".", "expected names up to a dot, such as fields.");

const bodySourceSchema = z.union([
  /** Everything below a prefix. `dot` is how keys spell their dots; names below a prefix of `except` are left out. */
  z.strictObject({
    prefix: prefixSchema,
    dot: nameSchema.optional(),
    except: z.array(prefixSchema).readonly().default([]),
  }),
  /** A list of `{ key, type, value }`, where `type` is the type of a value that is written as text. */
  z.strictObject({ pairs: nameSchema }),
  /** The object at the first of these names: a message of keys and values. Used if there is no text message. */
  z.strictObject({ structured: namesSchema }),
  /** The text at the first of these names, if it is the JSON of an object. */
  z.strictObject({ text: namesSchema }),
  /** Keys of the body, and the names at which their values lie. */
  z.strictObject({ named: z.record(nameSchema, namesSchema) }),
]);
export type BodySource = z.infer<typeof bodySourceSchema>;

/** A name that a mapping or a document may have; with `number`, as a whole number. */
const markSchema = z.union([
  nameSchema.transform((name) => ({ name, isNumber: false })),
  z.strictObject({ number: nameSchema }).transform(({ number: name }) => ({ name, isNumber: true })),
]);
export type LayoutMark = z.infer<typeof markSchema>;

const layoutFileSchema = z.object({
  name: nameSchema,
  logs: z.strictObject({
    /** Lines are sorted and bounded by the first field that an index maps as a time. */
    time: z
      .union([timeFieldSchema.transform((field) => [field]), z.array(timeFieldSchema).min(1)])
      .transform((fields): readonly TimeField[] => fields),
    message: namesSchema,
    /** With `json: source`: keys under which an object may take the place of a text message. */
    structured: namesSchema.optional(),
    /** Whether one line end is removed from the end of a message. */
    chomp: z.boolean().default(false),
    /** The first rule counts that yields a severity. */
    severity: z
      .array(z.union([nameSchema.transform((field): SeverityRule => ({ field })), severityRuleSchema]))
      .min(1)
      .readonly(),
    /** Fields whose numbers mean what each source wants them to mean. `check` reports documents whose only severity they are. */
    unread_numbers: z.array(nameSchema).readonly().default([]),
    hostname: namesSchema,
    group: namesSchema,
    /** The structured body: the document itself, or what these sources yield. Where two have a key, the first counts. */
    json: z.union([
      z.literal("source"),
      z.strictObject({ from: z.array(bodySourceSchema).min(1).readonly() }),
    ]),
    /** An index has the layout if it has any of these names, or all names of a list within. */
    detect: z
      .array(
        z.union([
          markSchema.transform((mark): readonly LayoutMark[] => [mark]),
          z.array(markSchema).min(1).readonly(),
        ]),
      )
      .min(1)
      .readonly(),
    /**
     * Layouts whose documents look alike, so that those of this one may have their names too. `auto` tries this one before them,
     * and never guesses it.
     */
    resembles: z.array(nameSchema).readonly().default([]),
    /** Layouts with a mark that is part of one of this one: where documents show both equally well, they are of this one. */
    precedes: z.array(nameSchema).readonly().default([]),
    /** What the layout cannot carry, for `readout check`. */
    lacks: z.array(z.string()).readonly().default([]),
  }),
});

export type LogLayout = z.infer<typeof layoutFileSchema>["logs"] & {
  readonly name: string;
  /** With `json: source`: the names to pick from each document, so that it need not be parsed. */
  readonly pickedNames: NameTree;
};

/** The fields of these rules, once each: one that holds words or numbers has a rule for either. */
export function listSeverityFields(rules: readonly SeverityRule[]): readonly string[] {
  return [...new Set(rules.map(({ field }) => field))];
}

/** The names of a document that decide a field of its line. */
export function listLineNames(
  { severity, structured = [], ...names }: LogLayout,
  field: "message" | "severity" | "hostname" | "group",
): readonly string[] {
  if (field === "severity") return listSeverityFields(severity);
  return field === "message" ? [...names.message, ...structured] : names[field];
}

/** Reads the text of a layout file; `explain` words the issues. @throws {ZodError} @throws {YAMLParseError} */
export function parseLogLayout(text: string, explain?: z.core.$ZodErrorMap): LogLayout {
  const { name, logs } = layoutFileSchema.parse(parse(text), explain && { error: explain });
  const fields = [...listSeverityFields(logs.severity), ...logs.message, ...logs.hostname, ...logs.group];
  // A body from several sources needs the parsed document.
  const picked = logs.json === "source" ? fields : [];
  return { name, ...logs, pickedNames: buildNameTree(picked) };
}

/** The built-in layouts by name, in the order of their names. */
export const logLayouts = readBuiltIn("layouts/logs/", parseLogLayout);
