// Layout files of the user's own that the sources of a configuration name. All are read and checked before anything is
// served, because no document of such a source can be read without its layout.
import { z } from "zod";
import { formatErrorCode } from "../core/errors.ts";
import { formatSuggestion } from "../core/suggestion.ts";
import type { BackendKind, CustomLayouts, LayoutReader } from "../store/backend.ts";
import { findWrittenKind, listWrittenPlaces } from "./places.ts";
import { toMapping } from "./plain-values.ts";
import { type IssueReporter, reportIssue } from "./validation.ts";
import type { Path } from "./yaml/yaml.ts";

/** What a kind of backend knows of layouts: of log lines, and of spans. */
export type LayoutReadersByPart = NonNullable<BackendKind<unknown>["layouts"]>;
/** The parsed layout files of one backend. */
export type CustomLayoutsByPart = CustomLayouts<unknown, unknown>;
interface Kinds {
  readonly get: (name: string) => { readonly layouts?: LayoutReadersByPart } | undefined;
}

/** Returns the parsed layout files by backend. `file` is unchecked: it may be wrong in any other way. */
export function readCustomLayouts(
  file: unknown,
  kinds: Kinds,
  readText: (path: string) => string,
  report: IssueReporter,
): ReadonlyMap<string, CustomLayoutsByPart> {
  const read = new Map<string, Record<"logs" | "traces", Map<string, unknown>>>();
  for (const named of listNamedLayouts(file, kinds)) {
    const layout = readCustomLayout(named, readText, report);
    const own = read.get(named.backend) ?? { logs: new Map(), traces: new Map() };
    read.set(named.backend, own);
    own[named.of].set(named.name, layout);
  }
  return read;
}

interface NamedLayout {
  readonly name: string;
  /** Where it is named. */
  readonly path: Path;
  readonly backend: string;
  readonly of: "logs" | "traces";
  readonly layouts: LayoutReader<unknown>;
}

/** Lists the layouts that sources name, but for built-in ones and `auto`: they must be files. */
function* listNamedLayouts(file: unknown, kinds: Kinds): Generator<NamedLayout> {
  const { backends, sites } = toMapping(file);
  for (const [site, entry] of Object.entries(toMapping(sites))) {
    for (const part of ["logs", "traces", "frontend"] as const) {
      const of = part === "logs" ? "logs" : "traces";
      for (const { path, entry: place, backend: named } of listWrittenPlaces(
        site,
        part,
        toMapping(entry)[part],
      )) {
        const backend = String(named);
        const layouts = findWrittenKind(toMapping(backends)[backend], kinds)?.layouts?.[of];
        if (layouts === undefined) continue;
        const { layout: name } = place;
        if (typeof name !== "string" || name === "" || name === "auto" || layouts.names.has(name)) continue;
        yield { name, path: [...path, "layout"], backend, of, layouts };
      }
    }
  }
}

/** Returns undefined where the file is no layout, which is then reported. */
function readCustomLayout(
  { name, path, layouts }: NamedLayout,
  readText: (path: string) => string,
  report: IssueReporter,
): unknown {
  let text: string;
  try {
    text = readText(name);
  } catch (error) {
    const reason = `is no built-in layout, and no file that can be read${formatErrorCode(error)}`;
    // A name with a slash or an ending is a path: built-in layouts have neither.
    const hint = /[/.]/.test(name) ? "" : formatSuggestion(name, ["auto", ...layouts.names]);
    report(path, `${reason}${hint}`);
    return undefined;
  }
  try {
    return layouts.parse(text);
  } catch (error) {
    const reportWithin = (within: Path, message: string) =>
      report(path, `is no layout: ${within.length > 0 ? `${within.join(".")}: ` : ""}${message}`);
    if (error instanceof z.ZodError) for (const issue of error.issues) reportIssue(issue, [], reportWithin);
    // The first line of a YAML error names fault and place; the others quote the file.
    else reportWithin([], String(error instanceof Error ? error.message : error).replace(/:?\n.*/s, ""));
    return undefined;
  }
}
