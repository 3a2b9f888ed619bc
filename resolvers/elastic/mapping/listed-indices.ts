// The indices and data streams that a server lists, with their names: an alias is a name of its index.
import { z } from "zod";
import { listFormerNames } from "./index-copies.ts";

/** An index or a data stream. */
export interface ListedIndex {
  /** What it is called: its own name, or the alias by which a lifecycle keeps the name of the index that it has replaced. */
  readonly name: string;
  readonly own: string;
  readonly aliases: readonly string[];
  readonly isStream: boolean;
  /** The indices behind a data stream, or the index itself. */
  readonly indices: readonly string[];
}

const listedSchema = z.object({
  indices: z.array(z.object({ name: z.string(), data_stream: z.string().optional() })),
  aliases: z
    .array(
      z.object({
        name: z.string(),
        indices: z.union([z.string(), z.array(z.string())]).default([]),
      }),
    )
    .default([]),
  data_streams: z
    .array(
      z.object({ name: z.string(), backing_indices: z.union([z.string(), z.array(z.string())]).default([]) }),
    )
    .default([]),
});

/** Reads the response of `GET /_resolve/index/<pattern>`. @throws {ZodError} */
export function readListedIndices(response: unknown): readonly ListedIndex[] {
  const { indices, aliases, data_streams } = listedSchema.parse(response);
  const streams = data_streams.map(({ name, backing_indices }) => ({
    name,
    indices: [backing_indices].flat(),
  }));
  const streamOf = new Map(streams.flatMap(({ name, indices }) => indices.map((index) => [index, name])));
  for (const { name, data_stream } of indices) if (data_stream !== undefined) streamOf.set(name, data_stream);
  // An alias may stand for what the pattern matches by that alias alone.
  const targets = aliases.flatMap((alias) => [alias.indices].flat());
  const names = new Set(
    [...indices.map(({ name }) => name), ...targets].map((name) => streamOf.get(name) ?? name),
  );
  for (const { name } of streams) names.add(name);
  return [...names].map((own) => {
    const stream = streams.find(({ name }) => name === own);
    const held = stream === undefined || stream.indices.length === 0 ? [own] : stream.indices;
    const ownAliases = aliases.flatMap((alias) => {
      const isOwn = [alias.indices].flat().some((target) => (streamOf.get(target) ?? target) === own);
      return isOwn ? [alias] : [];
    });
    const former = listFormerNames(own);
    const kept = ownAliases.find(
      ({ name, indices }) => former.includes(name) && [indices].flat().length === 1,
    );
    return {
      name: kept?.name ?? own,
      own,
      aliases: ownAliases.map((alias) => alias.name),
      isStream: stream !== undefined,
      indices: held,
    };
  });
}
