// Tenant filters whose text alone shows that they hold in no index. They are known before any backend has answered: one that is
// down while the program starts would else be asked with such a filter later.
import type { Steps } from "../core/async/turns.ts";
import type { BackendKind } from "../store/backend.ts";
import { findWrittenKind, listWrittenPlaces } from "./places.ts";
import { toMapping } from "./plain-values.ts";
import { type IssueReporter, redactSecrets } from "./validation.ts";
import { formatPathKey, type Path, type YamlTree } from "./yaml/yaml.ts";

interface Kinds {
  readonly get: (name: string) => Pick<BackendKind<unknown>, "findTenantFilterFault"> | undefined;
}

/** How many sites are checked in one step. */
const sitesPerStep = 200;

/** The file is unchecked: it may be wrong in any other way. */
export function* checkTenantFilters(tree: YamlTree, kinds: Kinds, report: IssueReporter): Steps<void> {
  const { backends, sites } = toMapping(tree.value);
  for (const [at, [site, entry]] of Object.entries(toMapping(sites)).entries()) {
    if (at % sitesPerStep === 0) yield;
    for (const part of ["logs", "traces"] as const) {
      for (const { path, entry: place, backend } of listWrittenPlaces(site, part, toMapping(entry)[part])) {
        const { where } = place;
        // The schema reports what is no text, and an empty one.
        if (typeof where !== "string" || where === "") continue;
        const kind = findWrittenKind(toMapping(backends)[String(backend)], kinds);
        const fault = kind?.findTenantFilterFault?.(where);
        const own = [...path, "where"];
        if (fault !== undefined) report(own, hideSecrets(fault, own, tree));
      }
    }
  }
}

function hideSecrets(fault: string, path: Path, { templates, secrets }: YamlTree): string {
  // In a text that was put together, a place tells how long what was put in is.
  const shown = templates.has(formatPathKey(path)) ? fault.replace(/ at character \d+$/, "") : fault;
  return redactSecrets(shown, secrets);
}
