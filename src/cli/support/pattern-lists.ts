// Lists of index patterns as search servers read them.
import { matchesPattern } from "../../metrics/tag-patterns.ts";

/**
 * Whether the list reaches an index of the cluster itself. An exclusion takes away what stands before it. `index` may be a pattern
 * without exclusions: then whether the list reaches all that it does.
 */
export function hasIndex(patterns: string, index: string): boolean {
  let isIn = false;
  for (const pattern of patterns.split(",")) {
    const isExclusion = pattern.startsWith("-");
    const named = isExclusion ? pattern.slice(1) : pattern;
    if (named === "_all" || matchesPattern(named, index)) isIn = !isExclusion;
  }
  return isIn;
}
