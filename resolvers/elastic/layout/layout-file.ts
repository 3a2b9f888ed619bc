// What the layout files of log lines and of spans have in common: how they write names and units, and how the built-in ones are
// read.
import { readdirSync, readFileSync } from "node:fs";
import { z } from "zod";
import { nanosPerMilli } from "../../../src/core/time.ts";

export const nameSchema = z.string().min(1);
/** Nanoseconds in each unit that a number may count a time or a duration in. */
export const nanosPerUnit = { s: 1_000_000_000n, ms: nanosPerMilli, us: 1_000n, ns: 1n } as const;

/** One name or several; the first that a document has counts. */
export const namesSchema = z
  .union([nameSchema, z.array(nameSchema).min(1)])
  .transform((either): readonly string[] => (typeof either === "string" ? [either] : either));

/** The layouts of a folder beside this file by name, in the order of their files. */
export function readBuiltIn<T extends { readonly name: string }>(
  folder: `layouts/${string}/`,
  read: (text: string) => T,
): ReadonlyMap<string, T> {
  const url = new URL(folder, import.meta.url);
  const files = readdirSync(url).filter((file) => file.endsWith(".yaml"));
  const layouts = files.sort().map((file) => read(readFileSync(new URL(file, url), "utf8")));
  return new Map(layouts.map((layout) => [layout.name, layout]));
}
