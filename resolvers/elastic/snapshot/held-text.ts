// What a version of a snapshot stands for, and its text, with which figures are kept beyond the process. A text that was kept
// is input like any other: what does not fit the schema is no version.
import { z } from "zod";
import { tryParseJson } from "../../../src/core/json/parse-json.ts";
import { maxMissing, type ShardStates } from "./shard-states.ts";

/** What a version stands for, by pattern. */
export type Held = ReadonlyMap<string, HeldPattern>;
interface HeldPattern {
  /** By name. */
  readonly indices: HeldIndices;
  /** By the number of the shards. */
  readonly states: readonly ShardStates[];
}

/** What else the documents' meaning depends on; much smaller than the metadata. */
export type HeldIndices = ReadonlyMap<string, HeldIndex>;
interface HeldIndex {
  readonly uuid: string | undefined;
  /** A digest of all fields as this user sees them: a new field may let old documents match, or show more of them. */
  readonly fields: string | undefined;
}

const optionalText = z
  .string()
  .nullable()
  .transform((text) => text ?? undefined);
const indexSchema = z
  .tuple([z.string(), optionalText, optionalText])
  .transform(([name, uuid, fields]) => [name, { uuid, fields }] as const);
const stateSchema = z
  .tuple([
    ...([z.string(), z.int().min(1), z.int(), z.int(), z.string(), z.string(), z.int().min(1)] as const),
    z.array(z.int().min(0)).max(maxMissing).nullable(),
  ])
  .transform(([name, documents, newest, term, id, recent, block, missing]) => {
    return [name, { documents, newest, term, id, recent, block, missing: missing ?? undefined }] as const;
  });
const heldSchema = z.strictObject({
  view: z.string(),
  patterns: z.array(
    z.strictObject({
      pattern: z.string(),
      indices: z.array(indexSchema),
      states: z.array(z.array(stateSchema)),
    }),
  ),
});

export function printHeld(held: Held, view: string): string {
  const patterns: z.input<typeof heldSchema>["patterns"] = [...held].map(
    ([pattern, { indices, states }]) => ({
      pattern,
      indices: [...indices].map(([name, { uuid = null, fields = null }]) => [name, uuid, fields]),
      states: states.map((shard) =>
        [...shard].map(([name, state]): z.input<typeof stateSchema> => {
          const { documents, newest, term, id, recent, block, missing } = state;
          return [name, documents, newest, term, id, recent, block, missing ? [...missing] : null];
        }),
      ),
    }),
  );
  return JSON.stringify({ view, patterns });
}

/** Undefined for a text that is none of `printHeld`, or of another view. */
export function parseHeld(text: string, view: string): Held | undefined {
  const { data } = heldSchema.safeParse(tryParseJson(text));
  if (data === undefined || data.view !== view) return undefined;
  return new Map(
    data.patterns.map(({ pattern, indices, states }) => [
      pattern,
      { indices: new Map(indices), states: states.map((shard) => new Map(shard)) },
    ]),
  );
}
