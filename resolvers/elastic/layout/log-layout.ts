// A log profile is a layout of documents as data: which names carry a line's fields, and where its body lies. The built-in
// ones are YAML files in `layouts/logs/`, and a user's own is a file of the same form. Names are paths whose dots may be
// nesting or part of a key.
import { parse } from "yaml";
import { z } from "zod";
import { type Severity, severities } from "../../../src/core/rows.ts";
import { buildNameTree, type NameTree, type PickedValues } from "../document/hit-scanner.ts";
import { formatScalar, type JsonObject } from "../document/lossless-json.ts";
import { nameSchema, namesSchema, nanosPerUnit, readBuiltIn } from "./layout-file.ts";

/** A `date` or `date_nanos` field; by its unit also a `long` one, which counts from 1970 on. */
const timeFieldSchema = z.union([
  nameSchema.transform((field) => ({ field, unit: undefined })),
  z.strictObject({
    field: nameSchema,
    unit: z.enum(["s", "ms", "us", "ns"]).transform((unit): bigint | undefined => nanosPerUnit[unit]),
  }),
]);

/** Syslog's number of a facility and a severity in one, eight times the facility: the severity is what is left of it. */
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
 * What a field's value says of the severity: its text in any case, or by `values`, or a number by `at_least`, whose
 * greatest key that is no greater than the number counts.
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
    .record(z.string().regex(/^\d+$/), z.enum(severities))
    .transform((steps) =>
      Object.entries(steps)
        .map(([from, severity]) => ({ from: Number(from), severity }))
        .sort((a, b) => a.from - b.from),
    )
    .optional(),
});
export type SeverityRule = z.infer<typeof severityRuleSchema>;

export interface TimeField {
  readonly field: string;
  /** Nanoseconds of one. */
  readonly unit: bigint | undefined;
}

const bodySourceSchema = z.union([
  /** What lies below a prefix. `dot` is how keys spell their dots. `except` are prefixes that are left out. */
  z.strictObject({
    prefix: nameSchema.endsWith("."),
    dot: nameSchema.optional(),
    except: z.array(nameSchema.endsWith(".")).readonly().default([]),
  }),
  /** A list of `{ key, type, value }`, where `type` says what a text stands for. */
  z.strictObject({ pairs: nameSchema }),
  /** The object at the first of these names: the message itself as keys and values. Counts where there is no text. */
  z.strictObject({ structured: namesSchema }),
  /** The text at the first of these names where it is the JSON of an object. */
  z.strictObject({ text: namesSchema }),
  /** Keys of the body, and where each lies. */
  z.strictObject({ named: z.record(nameSchema, namesSchema) }),
]);
export type BodySource = z.infer<typeof bodySourceSchema>;

const layoutFileSchema = z.object({
  name: nameSchema,
  logs: z.strictObject({
    /** Lines are sorted and bounded by the first that an index maps as a time. */
    time: z
      .union([timeFieldSchema.transform((field) => [field]), z.array(timeFieldSchema).min(1)])
      .transform((fields): readonly TimeField[] => fields),
    message: namesSchema,
    /** Of a body that is the whole document: keys of it under which an object may stand in place of a text. */
    structured: namesSchema.optional(),
    /** One line end at the end of a message is no part of it. */
    chomp: z.boolean().default(false),
    /** The first rule counts that a document has a severity by. */
    severity: z
      .array(z.union([nameSchema.transform((field): SeverityRule => ({ field })), severityRuleSchema]))
      .min(1)
      .readonly(),
    hostname: namesSchema,
    group: namesSchema,
    /** The structured body: the whole document, or what these hold. Where two have a key, the first counts. */
    json: z.union([
      z.literal("source"),
      z.strictObject({ from: z.array(bodySourceSchema).min(1).readonly() }),
    ]),
    /** Any of these shows the layout; a list within it, all of its names together. */
    detect: z.array(namesSchema).min(1).readonly(),
    /** What the layout cannot carry, for `readout check`. */
    lacks: z.array(z.string()).readonly().default([]),
  }),
});

export type LogLayout = z.infer<typeof layoutFileSchema>["logs"] & {
  readonly name: string;
  /** What is read of a document whose whole text is answered beside. */
  readonly pickedNames: NameTree;
};

/** @throws {ZodError} @throws {YAMLParseError} */
export function parseLogLayout(text: string): LogLayout {
  const { name, logs } = layoutFileSchema.parse(parse(text));
  const severity = logs.severity.map(({ field }) => field);
  const fields = [...severity, ...logs.message, ...logs.hostname, ...logs.group];
  // A body that is put together needs the whole document, not parts of it.
  const read = logs.json === "source" ? fields : [];
  return { name, ...logs, pickedNames: buildNameTree(read) };
}

/** The built-in profiles, in the order in which `auto` tries them. */
export const logLayouts = readBuiltIn("layouts/logs/", parseLogLayout);

/** Every way to read a dotted name as keys, the longest first key before others: `a.b` is ["a.b"], then ["a", "b"]. */
export function listSplits(name: string): readonly (readonly string[])[] {
  const known = knownSplits.get(name);
  if (known !== undefined) return known;
  const ways: string[][] = [];
  const segments = name.split(".");
  for (let mask = 0; mask < 1 << (segments.length - 1); mask++) {
    const keys = [segments[0] ?? ""];
    for (const [at, segment] of segments.slice(1).entries()) {
      // The lowest bit parts the last two segments, so that a rising mask shortens the first key last.
      if ((mask & (1 << (segments.length - 2 - at))) === 0) keys.push(`${keys.pop()}.${segment}`);
      else keys.push(segment);
    }
    ways.push(keys);
  }
  knownSplits.set(name, ways);
  return ways;
}
const knownSplits = new Map<string, readonly (readonly string[])[]>();

/** The text of the first scalar at a dotted name of a document; undefined where there is none. */
function findText(document: JsonObject, name: string): string | undefined {
  let first: string | undefined;
  const take = (text: string): boolean => {
    first = text;
    return true;
  };
  listSplits(name).some((keys) => visitScalars(document, keys, 0, take));
  return first;
}

/** The text of the first scalar at the first of the names that has one. */
export function findFirstText(
  document: JsonObject | PickedValues,
  names: readonly string[],
): string | undefined {
  for (const name of names) {
    const text = document instanceof Map ? document.get(name) : findText(document, name);
    if (text !== undefined) return text;
  }
  return undefined;
}

/** The texts of all scalars at a dotted name, in the document's order. */
export function listTexts(document: JsonObject | PickedValues, name: string): readonly string[] {
  const texts: string[] = [];
  if (document instanceof Map) {
    const text = document.get(name);
    return text === undefined ? texts : [text];
  }
  for (const keys of listSplits(name)) visitScalars(document, keys, 0, (text) => texts.push(text) === 0);
  return texts;
}

/** Arrays stand for their elements. Ends with true where `take` answers it. */
function visitScalars(
  value: unknown,
  keys: readonly string[],
  from: number,
  take: (text: string) => boolean,
): boolean {
  if (Array.isArray(value)) return value.some((element) => visitScalars(element, keys, from, take));
  const key = keys[from];
  if (key === undefined) {
    const text = formatScalar(value);
    return text !== undefined && take(text);
  }
  return (
    typeof value === "object" &&
    value !== null &&
    Object.hasOwn(value, key) &&
    visitScalars((value as JsonObject)[key], keys, from + 1, take)
  );
}
