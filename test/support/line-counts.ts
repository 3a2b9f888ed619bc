// Counts the lines of an export as `logs/counts` has to, by its documentation and from their text alone.
import { printMillis } from "#src/core/time.ts";
import { resolutions } from "#src/metrics/measures.ts";

type ExportedLine = Readonly<Record<string, string>>;

export function countExportedLines(
  lines: readonly ExportedLine[],
  resolution: keyof typeof resolutions,
  groupBy: string | undefined,
  limit = 10,
  hasGroupBuckets = false,
) {
  const step = resolutions[resolution];
  const bucketsOf = (some: readonly ExportedLine[]) =>
    [...Map.groupBy(some, ({ timestamp = "" }) => Math.floor(Date.parse(timestamp) / step))]
      .sort(([a], [b]) => a - b)
      .map(([at, { length }]) => ({ timestamp: printMillis(at * step), count: length }));
  const counted = { total: lines.length, resolution, buckets: bucketsOf(lines) };
  if (groupBy === undefined) return { ...counted, groups: null, other: null, lacking: null };
  const values = lines.map((line) => new Set(listValues(line, groupBy)));
  const totals = new Map<string, number>();
  for (const own of values) for (const value of own) totals.set(value, (totals.get(value) ?? 0) + 1);
  const ranked = [...totals]
    .map(([value, count]) => ({ value, count }))
    .sort((a, b) => b.count - a.count || Buffer.compare(Buffer.from(a.value), Buffer.from(b.value)));
  return {
    ...counted,
    groups: ranked.slice(0, limit).map((group) => {
      const own = lines.filter((_, at) => values[at]?.has(group.value));
      return hasGroupBuckets ? { ...group, buckets: bucketsOf(own) } : group;
    }),
    other: ranked.slice(limit).reduce((sum, { count }) => sum + count, 0),
    lacking: values.filter(({ size }) => size === 0).length,
  };
}

/** An exported line does not distinguish an absent field from an empty one, so those that are empty count as absent. */
function listValues(line: ExportedLine, groupBy: string): readonly string[] {
  if (groupBy === "source") return [line.source_id ?? ""];
  if (["severity", "hostname", "group"].includes(groupBy)) {
    const value = line[groupBy] ?? "";
    return value === "" ? [] : [value];
  }
  const keys = groupBy.split(/(?<!\\)\./).map((key) => key.replace(/^\\(?=source$)/, ""));
  return walk(readBody(line.json ?? ""), keys);
}

const spellNumber = (_key: string, value: unknown, { source }: { readonly source?: string }) =>
  typeof value === "number" ? { number: source } : value;

function readBody(json: string): unknown {
  try {
    return JSON.parse(json, spellNumber as Parameters<typeof JSON.parse>[1]);
  } catch {
    return undefined;
  }
}

function walk(node: unknown, keys: readonly string[]): readonly string[] {
  const [key, ...rest] = keys;
  if (Array.isArray(node)) {
    const at = Number(key);
    return key !== undefined && /^\d+$/.test(key)
      ? walk(node[at], rest)
      : node.flatMap((one) => walk(one, keys));
  }
  if (typeof node === "object" && node !== null) {
    const number = (node as { number?: unknown }).number;
    if (key === undefined) return typeof number === "string" ? [number] : [];
    return walk(Object.getOwnPropertyDescriptor(node, key)?.value, rest);
  }
  if (key !== undefined) return [];
  return typeof node === "string" || typeof node === "boolean" ? [String(node)] : [];
}
