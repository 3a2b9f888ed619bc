// The schema behind /graphql for a server: loaded when it is first asked for, because REST answers without it, and told
// of in `/readyz`, because a wrong file must not be met by a client first.
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Config } from "../config.ts";
import { ConfigError, failureCode } from "../errors.ts";
import type { Unified } from "../mesh.ts";
import { parseMeshrc } from "../meshrc.ts";
import { redact, type Telemetry } from "../telemetry.ts";
import type { Shell } from "./shell.ts";

/** What /graphql serves where the configuration names no other file. */
const ownMeshrc = relative("", fileURLToPath(new URL("../../.meshrc.yaml", import.meta.url)));

export interface GraphqlPart {
  /** @throws {ConfigError} what is wrong with the file or one of its sources */
  readonly load: () => Promise<Unified>;
  /** For an operator, in one line. */
  readonly state: () => string;
}

/** @throws {ConfigError} the file cannot be read, or is wrong as far as Mesh need not be asked */
export function checkMeshrc(file: string, shell: Shell): void {
  parseMeshrc(read(file, shell), file);
}

function read(file: string, shell: Shell): string {
  try {
    return shell.readText(file);
  } catch (error) {
    throw new ConfigError(file, [{ path: "", message: `cannot be read${failureCode(error)}` }]);
  }
}

/** A file that is no Mesh configuration is logged at once; what only its sources can tell, when it is loaded. */
export function prepareGraphql(
  { mesh: file = ownMeshrc }: Config,
  shell: Shell,
  telemetry: Telemetry,
): GraphqlPart {
  let state = "not asked for yet";
  const tell = (error: unknown) => {
    state = redact(error instanceof Error ? error.message : String(error)).replaceAll("\n", "; ");
  };
  try {
    checkMeshrc(file, shell);
  } catch (error) {
    tell(error);
    telemetry.log({ level: "error", message: "GraphQL cannot be served", reason: state });
  }
  const load = async (): Promise<Unified> => {
    try {
      const unified = await shell.loading(async () => {
        const { loadMesh } = await import("../mesh.ts");
        return loadMesh({ file, text: read(file, shell), log: telemetry.log });
      });
      state = "ready";
      return unified;
    } catch (error) {
      tell(error);
      throw error;
    }
  };
  return { load, state: () => state };
}
