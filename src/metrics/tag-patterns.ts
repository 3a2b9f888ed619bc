// What the pattern of a tag accepts. It is decided without asking a source, so all stores agree on it.

/** Whether a pattern has a wildcard, so that more than one value may satisfy it. */
export function isPattern(pattern: string): boolean {
  return pattern.includes("*");
}

/**
 * Whether a tag's value satisfies the pattern: each `*` stands for any text, also none and also line breaks, and every
 * other character for itself. A series without the tag, or with an empty value of it, which is the same, satisfies
 * no pattern, not even `""`.
 */
export function matchesPattern(pattern: string, value: string | undefined): boolean {
  if (value === undefined || value === "") return false;
  const [head = "", ...parts] = pattern.split("*");
  const tail = parts.pop();
  if (tail === undefined) return value === pattern;
  if (!value.startsWith(head) || !value.endsWith(tail)) return false;
  // The leftmost place for each part leaves the most room to the parts after it.
  let at = head.length;
  for (const part of parts) {
    const found = value.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return at <= value.length - tail.length;
}

/** Whether a series with these tags is one that the selector means; tags that the selector does not name are free. */
export function matchesTags(
  patterns: Readonly<Record<string, string>>,
  tags: ReadonlyMap<string, string>,
): boolean {
  return Object.entries(patterns).every(([key, pattern]) => matchesPattern(pattern, tags.get(key)));
}
