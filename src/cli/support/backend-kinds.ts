// The kinds of backends that a configuration file may name: those of the program, and modules of the user's own.
import type { BackendKinds } from "../../config/config.ts";
import { toErrorMessage } from "../../core/errors.ts";
import type { BackendKind } from "../../store/backend.ts";
import type { Shell } from "./shell.ts";

interface KindsOfFile extends BackendKinds {
  readonly get: (name: string) => BackendKind<unknown> | undefined;
}

/** Returns the kinds for a file. A module is loaded when it is first named. */
export function createKindLookup(file: string, { kinds, loadOwnKind }: Shell): KindsOfFile {
  const faults = new Map<string, string>();
  const load = (name: string): BackendKind<unknown> | undefined => {
    try {
      const kind = loadOwnKind(name, file);
      faults.delete(name);
      if (kind === undefined && isPath(name)) faults.set(name, "there is no such module");
      return kind;
    } catch (error) {
      faults.set(name, `the module cannot be used: ${takeFirstLine(toErrorMessage(error))}`);
      return undefined;
    }
  };
  return {
    get: (name) => kinds.get(name) ?? load(name),
    keys: () => kinds.keys(),
    findFault: (name) => faults.get(name),
  };
}

const isPath = (name: string): boolean => /^\.{0,2}\//.test(name);

const takeFirstLine = (text: string): string => (text.split("\n", 1)[0] ?? "").trimEnd();
