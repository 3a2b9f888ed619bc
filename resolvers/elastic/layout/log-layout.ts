// A log profile is a layout of documents as data: which names carry a line's fields, and where its body lies. The built-in
// ones are YAML files in `layouts/logs/`, and a user's own is a file of the same form. Names are paths whose dots may be
// nesting or part of a key.
import { parse } from "yaml";
import { z } from "zod";
import { type Severity, severities } from "../../../src/core/rows.ts";
import { type Names, namesOf, type Picked } from "../document/hit-scanner.ts";
import { type Json, textOf } from "../document/lossless-json.ts";
import { name, names, nanosPer, readBuiltIn } from "./built-in.ts";

/** A `date` or `date_nanos` field; by its unit also a `long` one, which counts from 1970 on. */
const timeField = z.union([
  name.transform((field) => ({ field, unit: undefined })),
  z.strictObject({
    field: name,
    unit: z.enum(["s", "ms", "us", "ns"]).transform((unit): bigint | undefined => nanosPer[unit]),
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
const severityRule = z.strictObject({
  field: name,
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
export type SeverityRule = z.infer<typeof severityRule>;

export interface TimeField {
  readonly field: string;
  /** Nanoseconds of one. */
  readonly unit: bigint | undefined;
}

const bodySource = z.union([
  /** What lies below a prefix. `dot` is how keys spell their dots. `except` are prefixes that are left out. */
  z.strictObject({
    prefix: name.endsWith("."),
    dot: name.optional(),
    except: z.array(name.endsWith(".")).readonly().default([]),
  }),
  /** A list of `{ key, type, value }`, where `type` says what a text stands for. */
  z.strictObject({ pairs: name }),
  /** The object at the first of these names: the message itself as keys and values. Counts where there is no text. */
  z.strictObject({ structured: names }),
  /** The text at the first of these names where it is the JSON of an object. */
  z.strictObject({ text: names }),
  /** Keys of the body, and where each lies. */
  z.strictObject({ named: z.record(name, names) }),
]);
export type BodySource = z.infer<typeof bodySource>;

const schema = z.object({
  name,
  logs: z.strictObject({
    /** Lines are sorted and bounded by the first that an index maps as a time. */
    time: z
      .union([timeField.transform((field) => [field]), z.array(timeField).min(1)])
      .transform((fields): readonly TimeField[] => fields),
    message: names,
    /** Of a body that is the whole document: keys of it under which an object may stand in place of a text. */
    structured: names.optional(),
    /** One line end at the end of a message is no part of it. */
    chomp: z.boolean().default(false),
    /** The first rule counts that a document has a severity by. */
    severity: z
      .array(z.union([name.transform((field): SeverityRule => ({ field })), severityRule]))
      .min(1)
      .readonly(),
    hostname: names,
    group: names,
    /** The structured body: the whole document, or what these hold. Where two have a key, the first counts. */
    json: z.union([z.literal("source"), z.strictObject({ from: z.array(bodySource).min(1).readonly() })]),
    /** Any of these shows the layout; a list within it, all of its names together. */
    detect: z.array(names).min(1).readonly(),
    /** What the layout cannot carry, for `readout check`. */
    lacks: z.array(z.string()).readonly().default([]),
  }),
});

export type LogProfile = z.infer<typeof schema>["logs"] & {
  readonly name: string;
  /** What is read of a document whose whole text is answered beside. */
  readonly picked: Names;
};

/** @throws {ZodError} @throws {YAMLParseError} */
export function readProfile(text: string): LogProfile {
  const { name, logs } = schema.parse(parse(text));
  const severity = logs.severity.map(({ field }) => field);
  const fields = [...severity, ...logs.message, ...logs.hostname, ...logs.group];
  // A body that is put together needs the whole document, not parts of it.
  const read = logs.json === "source" ? fields : [];
  return { name, ...logs, picked: namesOf(read) };
}

/** The built-in profiles, in the order in which `auto` tries them. */
export const profiles = readBuiltIn("layouts/logs/", readProfile);

/** Every way to read a dotted name as keys, the longest first key before others: `a.b` is ["a.b"], then ["a", "b"]. */
export function splits(name: string): readonly (readonly string[])[] {
  const known = splitsOf.get(name);
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
  splitsOf.set(name, ways);
  return ways;
}
const splitsOf = new Map<string, readonly (readonly string[])[]>();

/** The text of the first scalar at a dotted name of a document; undefined where there is none. */
function textAt(document: Json, name: string): string | undefined {
  let first: string | undefined;
  const take = (text: string): boolean => {
    first = text;
    return true;
  };
  splits(name).some((keys) => visit(document, keys, 0, take));
  return first;
}

/** The text of the first scalar at the first of the names that has one. */
export function firstText(document: Json | Picked, names: readonly string[]): string | undefined {
  for (const name of names) {
    const text = document instanceof Map ? document.get(name) : textAt(document, name);
    if (text !== undefined) return text;
  }
  return undefined;
}

/** The texts of all scalars at a dotted name, in the document's order. */
export function textsAt(document: Json | Picked, name: string): readonly string[] {
  const texts: string[] = [];
  if (document instanceof Map) {
    const text = document.get(name);
    return text === undefined ? texts : [text];
  }
  for (const keys of splits(name)) visit(document, keys, 0, (text) => texts.push(text) === 0);
  return texts;
}

/** Arrays stand for their elements. Ends with true where `take` answers it. */
function visit(
  value: unknown,
  keys: readonly string[],
  from: number,
  take: (text: string) => boolean,
): boolean {
  if (Array.isArray(value)) return value.some((element) => visit(element, keys, from, take));
  const key = keys[from];
  if (key === undefined) {
    const text = textOf(value);
    return text !== undefined && take(text);
  }
  return (
    typeof value === "object" &&
    value !== null &&
    Object.hasOwn(value, key) &&
    visit((value as Json)[key], keys, from + 1, take)
  );
}
