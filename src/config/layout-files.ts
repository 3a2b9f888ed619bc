// The profiles of their own that a configuration's sources name: files that must be there and must be profiles before
// anything is served, because nothing of such a source can be read without.
import { z } from "zod";
import { failureCode } from "../core/errors.ts";
import type { BackendKind, OwnProfiles, Profiles } from "../store/store.ts";
import { type Report, reportIssue } from "./validation.ts";
import { mapping, type Path } from "./yaml.ts";

/** Those of a kind of backend, by the part of a site. */
export type ProfilesByPart = NonNullable<BackendKind<unknown>["profiles"]>;
/** What was read of the user's own, for one backend. */
export type OwnByPart = OwnProfiles<unknown, unknown>;
type Kinds = ReadonlyMap<string, { readonly profiles?: ProfilesByPart }>;

/** By backend, of `file` as written, what is wrong with it otherwise included. */
export function readProfiles(
  file: unknown,
  kinds: Kinds,
  readText: (path: string) => string,
  report: Report,
): ReadonlyMap<string, OwnByPart> {
  const read = new Map<string, Record<"logs" | "traces", Map<string, unknown>>>();
  for (const named of profilesIn(file, kinds)) {
    const profile = readProfile(named, readText, report);
    const own = read.get(named.backend) ?? { logs: new Map(), traces: new Map() };
    read.set(named.backend, own);
    own[named.of].set(named.name, profile);
  }
  return read;
}

interface NamedProfile {
  readonly name: string;
  /** Where it is named. */
  readonly path: Path;
  readonly backend: string;
  readonly of: "logs" | "traces";
  readonly profiles: Profiles<unknown>;
}

/** Those that are neither built in nor to be found out. */
function* profilesIn(file: unknown, kinds: Kinds): Generator<NamedProfile> {
  const { backends, sites } = mapping(file);
  for (const [site, entry] of Object.entries(mapping(sites))) {
    for (const part of ["logs", "traces", "frontend"] as const) {
      const own = mapping(mapping(entry)[part]);
      const backend = String(own.backend);
      const kind = kinds.get(String(mapping(mapping(backends)[backend]).kind));
      const of = part === "logs" ? "logs" : "traces";
      const profiles = kind?.profiles?.[of];
      if (profiles === undefined) continue;
      const path = ["sites", site, part];
      const sources: readonly (readonly [Path, unknown])[] =
        part === "logs"
          ? Object.entries(mapping(own.sources)).map(([id, source]) => [[...path, "sources", id], source])
          : [[path, own]];
      for (const [path, source] of sources) {
        const { profile: name } = mapping(source);
        if (typeof name !== "string" || name === "" || name === "auto" || profiles.has(name)) continue;
        yield { name, path: [...path, "profile"], backend, of, profiles };
      }
    }
  }
}

/** Undefined where it is no profile, which has been reported. */
function readProfile(
  { name, path, profiles }: NamedProfile,
  readText: (path: string) => string,
  report: Report,
): unknown {
  let text: string;
  try {
    text = readText(name);
  } catch (error) {
    report(path, `is no built-in profile, and no file that can be read${failureCode(error)}`);
    return undefined;
  }
  try {
    return profiles.parse(text);
  } catch (error) {
    const tell = (within: Path, message: string) =>
      report(path, `is no profile: ${within.length > 0 ? `${within.join(".")}: ` : ""}${message}`);
    if (error instanceof z.ZodError) for (const issue of error.issues) reportIssue(issue, [], tell);
    // Its first line tells what and where, the others show the place.
    else tell([], String(error instanceof Error ? error.message : error).replace(/:?\n.*/s, ""));
    return undefined;
  }
}
