// Normalises the statements of a scan with a cache: a scan has the same few statements again and again.
import { normaliseStatement } from "./normalise-statement.js";

const fewStatements = 10_000;

/** `normaliseStatement` with a cache of so many results. */
export function createNormaliser(maxCached = fewStatements): (statement: string) => string {
  const known = new Map<string, string>();
  return (statement) => {
    const found = known.get(statement);
    if (found !== undefined) return found;
    const normalised = normaliseStatement(statement);
    // More are statements with literal values, which hardly repeat.
    if (known.size < maxCached) known.set(statement, normalised);
    return normalised;
  };
}
