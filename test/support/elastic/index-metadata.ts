// The metadata of a response, read at once.
import { readIndexMetadata as readInSteps } from "#resolvers/elastic/mapping/index-metadata.ts";
import type { IndexMetadata } from "#resolvers/elastic/mapping/mapping.ts";
import { runSteps } from "#src/core/async/turns.ts";

export function readIndexMetadata(response: unknown, pattern = "*"): IndexMetadata {
  return runSteps(readInSteps(response as Readonly<Record<string, unknown>>, pattern));
}
