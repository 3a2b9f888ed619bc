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

/** Every way to read a dotted name as keys, the longest first key before others: `a.b` is ["a.b"], then ["a", "b"]. */
function splits(name: string): readonly (readonly string[])[] {
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

/**
 * The text at a dotted name of a document, or the number: the first element of an array. Undefined where there is
 * nothing, or an object.
 */
export function readName(document: Json, name: string): string | number | undefined {
  for (const keys of splits(name)) {
    const value = find(document, keys, 0);
    if (typeof value === "string" || typeof value === "number") return value;
    if (typeof value === "boolean") return String(value);
  }
  return undefined;
}

/** The first scalar at the keys, in the document's order. */
function find(value: unknown, keys: readonly string[], from: number): unknown {
  if (typeof value !== "object" || value === null) return from === keys.length ? value : undefined;
  if (Array.isArray(value)) {
    for (const element of value) {
      const found = find(element, keys, from);
      if (found !== undefined && found !== null) return found;
    }
    return undefined;
  }
  const key = keys[from];
  return key !== undefined && Object.hasOwn(value, key)
    ? find((value as Json)[key], keys, from + 1)
    : undefined;
}
