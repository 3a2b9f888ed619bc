// A profile is a layout of documents as data: which names carry a line's fields. The built-in ones are YAML files in
// `profiles/`, and a user's own is a file of the same form.
import { readdirSync, readFileSync } from "node:fs";
import { parse } from "yaml";
import { z } from "zod";

const names = z.array(z.string().min(1)).min(1).readonly();

const schema = z.strictObject({
  name: z.string().min(1),
  logs: z.strictObject({
    /** A `date` or `date_nanos` field: what lines are sorted and bounded by. */
    time: z.string().min(1),
    message: names,
    severity: names,
    hostname: names,
    group: names,
    json: z.literal("source"),
    detect: names,
  }),
});

export type LogProfile = z.infer<typeof schema>["logs"] & {
  readonly name: string;
  /** The keys of a document under which its line fields can stand. */
  readonly firstSegments: ReadonlySet<string>;
};

/** @throws {ZodError} @throws {YAMLParseError} */
export function readProfile(text: string): LogProfile {
  const { name, logs } = schema.parse(parse(text));
  const fields = [logs.message, logs.severity, logs.hostname, logs.group].flat();
  return { name, ...logs, firstSegments: new Set(fields.map((field) => field.split(".", 1)[0] ?? field)) };
}

const folder = new URL("profiles/", import.meta.url);

/** The built-in profiles, in the order in which `auto` tries them. */
export const profiles: ReadonlyMap<string, LogProfile> = new Map(
  readdirSync(folder)
    .filter((file) => file.endsWith(".yaml"))
    .sort()
    .map((file) => readProfile(readFileSync(new URL(file, folder), "utf8")))
    .map((profile) => [profile.name, profile]),
);

type Json = { readonly [key: string]: unknown };

/**
 * The text at a dotted name of a document: the first element of an array, a number as its digits. Undefined where
 * there is nothing, or an object. Every split of the name into keys is tried, the longest first key before others.
 */
export function readName(
  document: Json,
  name: string,
  numberText: (value: number) => string,
): string | undefined {
  const value = find(document, name.split("."), 0);
  return scalarText(value, numberText);
}

function find(value: unknown, segments: readonly string[], from: number): unknown {
  if (from === segments.length) return Array.isArray(value) ? firstScalar(value) : value;
  if (Array.isArray(value)) {
    for (const element of value) {
      const found = find(element, segments, from);
      if (isScalar(found)) return found;
    }
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  for (let to = segments.length; to > from; to--) {
    const key = segments.slice(from, to).join(".");
    if (!Object.hasOwn(value, key)) continue;
    const found = find((value as Json)[key], segments, to);
    if (isScalar(found)) return found;
  }
  return undefined;
}

function firstScalar(values: readonly unknown[]): unknown {
  for (const value of values) {
    const found = Array.isArray(value) ? firstScalar(value) : value;
    if (isScalar(found)) return found;
  }
  return undefined;
}

function isScalar(value: unknown): boolean {
  return value !== undefined && value !== null && typeof value !== "object";
}

function scalarText(value: unknown, numberText: (value: number) => string): string | undefined {
  if (typeof value === "string") return value;
  if (typeof value === "number") return numberText(value);
  return typeof value === "boolean" ? String(value) : undefined;
}
