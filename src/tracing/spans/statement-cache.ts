// The statements of a scan, normalised. What that means is in normalise.js.
import { normaliseStatement } from "./normalise-statement.js";

export { normaliseStatement };

/** `normaliseStatement`, worked out once for each text: a scan meets the same few statements again and again. */
export function createNormaliser(): (statement: string) => string {
  const known = new Map<string, string>();
  return (statement) => {
    const found = known.get(statement);
    if (found !== undefined) return found;
    const normalised = normaliseStatement(statement);
    // Statements with their values inside are all different, and not worth keeping.
    if (known.size < 10_000) known.set(statement, normalised);
    return normalised;
  };
}
