// Loads the GraphQL schema of a server at the first request for it, because REST does without. `/readyz` shows its state,
// so that a wrong file is noticed before a client meets it.
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Config } from "../../config/config.ts";
import { parseMeshrc } from "../../config/mesh-config.ts";
import { ConfigError, toErrorMessage } from "../../core/errors.ts";
import type { UnifiedSchema } from "../../graphql/mesh.ts";
import { redactCredentials } from "../../telemetry/redaction.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";
import { readConfigText } from "./config-file.ts";
import { describeError } from "./open-backend.ts";
import type { Shell } from "./shell.ts";

/** The Mesh configuration where readout.yaml names no other. */
const defaultMeshrc = relative("", fileURLToPath(new URL("../../../.meshrc.yaml", import.meta.url)));

interface GraphqlLoader {
  /** @throws {ConfigError} what is wrong with the file or one of its sources */
  readonly load: () => Promise<UnifiedSchema>;
  /** The state in one line, for operators. */
  readonly state: () => string;
  /** Whether the file differs from what is served, which stays until a restart. */
  readonly isOutdated: () => boolean;
}

/** Returns why the file cannot be served, a line each. Reads the schemas of its sources once. */
export async function findMeshProblems(file: string, shell: Shell): Promise<readonly string[]> {
  try {
    const text = readConfigText(file, shell);
    parseMeshrc(text, file);
    await loadSchema(file, text, shell, () => {});
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message.split("\n").map(describeError);
  }
}

function loadSchema(file: string, text: string, shell: Shell, log: Telemetry["log"]): Promise<UnifiedSchema> {
  return shell.loadModules(async () => {
    const { loadMesh } = await import("../../graphql/mesh.ts");
    return loadMesh({ file, text, log });
  });
}

/** Logs at once that a file is no Mesh configuration. Faults of its sources show when it is loaded. */
export function createGraphqlLoader(
  { mesh: file = defaultMeshrc }: Pick<Config, "mesh">,
  shell: Shell,
  telemetry: Telemetry,
): GraphqlLoader {
  let state = "not loaded yet";
  let served: string | undefined;
  const keepFault = (error: unknown) => {
    state = redactCredentials(toErrorMessage(error)).replaceAll("\n", "; ");
  };
  try {
    parseMeshrc(readConfigText(file, shell), file);
  } catch (error) {
    keepFault(error);
    telemetry.log({ level: "error", message: "GraphQL cannot be served", reason: state });
  }
  const load = async (): Promise<UnifiedSchema> => {
    try {
      const text = readConfigText(file, shell);
      const unified = await loadSchema(file, text, shell, telemetry.log);
      served = text;
      state = "ready";
      return unified;
    } catch (error) {
      keepFault(error);
      throw error;
    }
  };
  const outdated = () => {
    if (served === undefined) return false;
    try {
      return readConfigText(file, shell) !== served;
    } catch {
      return true;
    }
  };
  return { load, state: () => state, isOutdated: outdated };
}
