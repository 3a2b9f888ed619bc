// The profiles of their own that a configuration's sources name: files that must be there and must be profiles before
// anything is served, because nothing of such a source can be read without.
import { z } from "zod";
import { failureCode } from "./errors.ts";
import { type Report, reportIssue } from "./issues.ts";
import type { BackendKind, Profiles } from "./store.ts";
import { mapping, type Path } from "./yaml.ts";

/** Those of a kind of backend, by the part of a site. */
export type ProfilesByPart = NonNullable<BackendKind<unknown>["profiles"]>;
type Kinds = ReadonlyMap<string, { readonly profiles?: ProfilesByPart }>;

/** `file` as written, what is wrong with it otherwise included. */
export function checkProfiles(
  file: unknown,
  kinds: Kinds,
  readText: (path: string) => string,
  report: Report,
): void {
  for (const profile of profilesIn(file, kinds)) checkProfile(profile, readText, report);
}

interface NamedProfile {
  readonly name: string;
  readonly path: Path;
  readonly profiles: Profiles;
}

/** Those that are neither built in nor to be found out. */
function* profilesIn(file: unknown, kinds: Kinds): Generator<NamedProfile> {
  const { backends, sites } = mapping(file);
  for (const [site, entry] of Object.entries(mapping(sites))) {
    for (const part of ["logs", "traces", "frontend"] as const) {
      const own = mapping(mapping(entry)[part]);
      const kind = kinds.get(String(mapping(mapping(backends)[String(own.backend)]).kind));
      const profiles = kind?.profiles?.[part === "logs" ? "logs" : "traces"];
      if (profiles === undefined) continue;
      const path = ["sites", site, part];
      const sources: readonly (readonly [Path, unknown])[] =
        part === "logs"
          ? Object.entries(mapping(own.sources)).map(([id, source]) => [[...path, "sources", id], source])
          : [[path, own]];
      for (const [path, source] of sources) {
        const { profile: name } = mapping(source);
        if (typeof name !== "string" || name === "" || name === "auto" || profiles.has(name)) continue;
        yield { name, path: [...path, "profile"], profiles };
      }
    }
  }
}

function checkProfile(
  { name, path, profiles }: NamedProfile,
  readText: (path: string) => string,
  report: Report,
): void {
  let text: string;
  try {
    text = readText(name);
  } catch (error) {
    report(path, `is no built-in profile, and no file that can be read${failureCode(error)}`);
    return;
  }
  try {
    profiles.parse(text);
  } catch (error) {
    const tell = (within: Path, message: string) =>
      report(path, `is no profile: ${within.length > 0 ? `${within.join(".")}: ` : ""}${message}`);
    if (error instanceof z.ZodError) for (const issue of error.issues) reportIssue(issue, [], tell);
    // Its first line tells what and where, the others show the place.
    else tell([], String(error instanceof Error ? error.message : error).replace(/:?\n.*/s, ""));
  }
}
