// Where a part of a site has its data: in one backend, or in several. A file as it was written is walked here in one way, so
// that no check of it forgets a backend.
import { toMapping } from "./plain-values.ts";
import type { SitePart } from "./schema.ts";
import type { Path } from "./yaml/yaml.ts";

/** An entry of the file that reads from a backend. */
export interface WrittenPlace {
  readonly path: Path;
  readonly entry: Readonly<Record<string, unknown>>;
  /** Its own, or that of its part. */
  readonly backend: unknown;
  /** Whether it is one of a list of places that are read together. */
  readonly isListed: boolean;
}

/** Lists the places of a part; `part` is unchecked and may be wrong in any way. */
export function listWrittenPlaces(site: string, name: SitePart, part: unknown): readonly WrittenPlace[] {
  const path = ["sites", site, name];
  if (name === "logs") return listLogPlaces(path, toMapping(part));
  if (Array.isArray(part)) return listPlacesOfList(path, part);
  const entry = toMapping(part);
  return [{ path, entry, backend: entry.backend, isListed: false }];
}

function listLogPlaces(path: Path, logs: WrittenPlace["entry"]): readonly WrittenPlace[] {
  return Object.entries(toMapping(logs.sources)).flatMap(([id, source]): readonly WrittenPlace[] => {
    const own = [...path, "sources", id];
    const entry = toMapping(source);
    if (Array.isArray(entry.backends)) {
      return listPlacesOfList([...own, "backends"], entry.backends);
    }
    return [{ path: own, entry, backend: entry.backend ?? logs.backend, isListed: false }];
  });
}

function listPlacesOfList(path: Path, list: readonly unknown[]): readonly WrittenPlace[] {
  return list.map((place, index) => {
    const entry = toMapping(place);
    return { path: [...path, String(index)], entry, backend: entry.backend, isListed: true };
  });
}

/** The kind of a backend as it is written; undefined where it names none that there is. */
export function findWrittenKind<Kind>(
  backend: unknown,
  kinds: { readonly get: (name: string) => Kind | undefined },
): Kind | undefined {
  const { kind } = toMapping(backend);
  return typeof kind === "string" ? kinds.get(kind) : undefined;
}
