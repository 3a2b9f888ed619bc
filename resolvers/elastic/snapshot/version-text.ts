// Prints the state of a snapshot as text and parses it. The text is kept with figures, so that a later process can tell what has
// changed. It is input like any other when it comes back: what does not fit the schema is no version.
import { z } from "zod";
import { tryParseJson } from "../../../src/core/json/parse-json.ts";
import { maxMissing } from "./missing-numbers.ts";
import type { ShardState, ShardStates } from "./shard-states.ts";

/** What the snapshot showed, by pattern. */
export type SnapshotState = ReadonlyMap<string, PatternState>;
interface PatternState {
  /** By name. */
  readonly indices: IndexIdentities;
  /** The documents in each shard, by the number of the shard. */
  readonly shards: readonly ShardStates[];
}

/** What the documents' meaning depends on besides the documents; much smaller than the indices' metadata. */
export type IndexIdentities = ReadonlyMap<string, IndexIdentity>;
interface IndexIdentity {
  readonly uuid: string | undefined;
  /** A digest of all fields as this user sees them: a new field may let old documents match, or show more of them. */
  readonly fields: string | undefined;
}

const optionalText = z
  .string()
  .nullable()
  .transform((text) => text ?? undefined);
/** An entry of `IndexIdentities`. */
const indexSchema = z
  .tuple([z.string(), optionalText, optionalText])
  .transform(([name, uuid, fields]) => [name, { uuid, fields }] as const);
/** An entry of `ShardStates`. */
const shardStateSchema = z
  .tuple([
    z.string(), // index
    z.int().min(1), // documents
    z.int(), // newest
    z.int(), // term
    z.string(), // id
    z.string(), // recentDigest
    z.int().min(1), // blockLength
    z.array(z.int().min(0)).max(maxMissing).nullable(), // missing
  ])
  .transform(([index, documents, newest, term, id, recentDigest, blockLength, listed]) => {
    const missing = listed ?? undefined;
    return [index, { documents, newest, term, id, recentDigest, blockLength, missing }] as const;
  });
const versionSchema = z.strictObject({
  /** As `ElasticClient.view`: another one may see other documents. */
  view: z.string(),
  patterns: z.array(
    z.strictObject({
      pattern: z.string(),
      indices: z.array(indexSchema),
      states: z.array(z.array(shardStateSchema)),
    }),
  ),
});

export function printVersion(state: SnapshotState, view: string): string {
  const patterns: z.input<typeof versionSchema>["patterns"] = [...state].map(
    ([pattern, { indices, shards }]) => ({
      pattern,
      indices: [...indices].map(([name, { uuid = null, fields = null }]) => [name, uuid, fields]),
      states: shards.map((shard) => [...shard].map(writeShardState)),
    }),
  );
  return JSON.stringify({ view, patterns });
}

function writeShardState([index, state]: readonly [string, ShardState]): z.input<typeof shardStateSchema> {
  const { documents, newest, term, id, recentDigest, blockLength, missing } = state;
  return [index, documents, newest, term, id, recentDigest, blockLength, missing ? [...missing] : null];
}

/** Undefined for a text that is none of `printVersion`, or of another view. */
export function parseSnapshotState(text: string, view: string): SnapshotState | undefined {
  const { data } = versionSchema.safeParse(tryParseJson(text));
  if (data === undefined || data.view !== view) return undefined;
  return new Map(
    data.patterns.map(({ pattern, indices, states }) => [
      pattern,
      { indices: new Map(indices), shards: states.map((shard) => new Map(shard)) },
    ]),
  );
}
