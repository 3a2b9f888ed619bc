// What files of layouts have in common, those of lines and those of spans: how they write names, and the folders in which
// the built-in ones lie.
import { readdirSync, readFileSync } from "node:fs";
import { z } from "zod";
import { nanosPerMilli } from "../../../src/core/time.ts";

export const nameSchema = z.string().min(1);
/** Nanoseconds of one of the units in which a number may count a time or a length. */
export const nanosPerUnit = { s: 1_000_000_000n, ms: nanosPerMilli, us: 1_000n, ns: 1n } as const;

/** The first that a document has counts. */
export const namesSchema = z
  .union([nameSchema, z.array(nameSchema).min(1)])
  .transform((either): readonly string[] => (typeof either === "string" ? [either] : either));

/** The layouts of a folder beside this file, by their names, in the order of their files. */
export function readBuiltIn<T extends { readonly name: string }>(
  folder: `layouts/${string}/`,
  read: (text: string) => T,
): ReadonlyMap<string, T> {
  const place = new URL(folder, import.meta.url);
  const files = readdirSync(place).filter((file) => file.endsWith(".yaml"));
  const layouts = files.sort().map((file) => read(readFileSync(new URL(file, place), "utf8")));
  return new Map(layouts.map((layout) => [layout.name, layout]));
}
