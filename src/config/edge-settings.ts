// How the server meets its clients: which codings their answers may have.
import { z } from "zod";
import { count } from "./validation.ts";

/** In the order in which they are preferred where a client likes both as much. */
const codingNames = ["zstd", "gzip"] as const;

export type CodingName = (typeof codingNames)[number];

/** How answers are compressed for clients that send `Accept-Encoding`. */
export interface CompressionConfig {
  readonly codings: readonly CodingName[];
  /** The same for each coding. */
  readonly level: number;
  /** Shorter complete answers are sent as they are. */
  readonly minBytes: number;
  /** Whether clients on this machine get them too. */
  readonly loopback: boolean;
}

export const defaultCompression = {
  codings: codingNames,
  level: 1,
  minBytes: 4_096,
  loopback: false,
} as const satisfies CompressionConfig;

const expectedLevel = "expected a whole number from 1 to 9";

export const compressionSchema = z.strictObject({
  codings: z.array(z.enum(codingNames)).default([...defaultCompression.codings]),
  level: count(1, expectedLevel)
    .refine((level) => level <= 9, expectedLevel)
    .default(defaultCompression.level),
  min_bytes: count(0).default(defaultCompression.minBytes),
  loopback: z.boolean().default(defaultCompression.loopback),
});
