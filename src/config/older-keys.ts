// Older names of configuration keys. A file that uses them still works: each is renamed before anything is checked.
// Messages name a key as the file spells it.

import { toMapping } from "./plain-values.ts";
import type { IssueReporter } from "./validation.ts";
import { formatPathKey, type Path } from "./yaml/yaml.ts";

interface RenamedKey {
  /** The path of the map that holds the key; `*` stands for any key. */
  readonly map: Path;
  readonly older: string;
  readonly key: string;
}

const renamedKeys: readonly RenamedKey[] = [
  { map: ["sites", "*", "logs", "sources", "*"], older: "profile", key: "layout" },
  { map: ["sites", "*", "traces"], older: "profile", key: "layout" },
  { map: ["sites", "*", "frontend"], older: "profile", key: "layout" },
  { map: ["limits"], older: "millisecond", key: "lines_per_millisecond" },
  { map: ["tail"], older: "open", key: "max_open" },
];

interface RenamedFile {
  /** The values of the file under today's keys. */
  readonly value: unknown;
  /** Turns a path within `value` into the one that the file has. */
  readonly toWrittenPath: (path: Path) => Path;
}

/** Reports each key that the file gives under both names; the newer one then counts, so that the rest is checked. */
export function renameOlderKeys(file: unknown, report: IssueReporter): RenamedFile {
  const written = new Map<string, Path>();
  const value = renamedKeys.reduce((value, renamed) => {
    return changeMaps(value, renamed.map, [], (map, path) => {
      const { older, key } = renamed;
      if (!Object.hasOwn(map, older)) return map;
      const { [older]: old, ...others } = map;
      if (Object.hasOwn(map, key)) {
        report([...path, older], `is the older name of ${key}, which is given too: remove one of them`);
        return others;
      }
      written.set(formatPathKey([...path, key]), [...path, older]);
      return { ...others, [key]: old };
    });
  }, file);
  return { value, toWrittenPath: (path) => written.get(formatPathKey(path)) ?? path };
}

type Mapping = Readonly<Record<string, unknown>>;

/**
 * Changes the maps at `keys`, in which `*` stands for any key, within the value at `path`. What is no map, or unchanged, is
 * returned as it is.
 */
function changeMaps(
  value: unknown,
  keys: Path,
  path: Path,
  change: (map: Mapping, path: Path) => Mapping,
): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const map = toMapping(value);
  const next = keys[path.length];
  if (next === undefined) return change(map, path);
  const changed: Record<string, unknown> = {};
  for (const key of next === "*" ? Object.keys(map) : [next]) {
    const child = changeMaps(map[key], keys, [...path, key], change);
    if (child !== map[key]) changed[key] = child;
  }
  return Object.keys(changed).length === 0 ? map : { ...map, ...changed };
}
