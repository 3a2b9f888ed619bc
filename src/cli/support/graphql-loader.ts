// The schema behind /graphql for a server: loaded when it is first asked for, because REST answers without it, and told
// of in `/readyz`, because a wrong file must not be met by a client first.
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Config } from "../../config/config.ts";
import { parseMeshrc } from "../../config/mesh-config.ts";
import { ConfigError, toErrorMessage } from "../../core/errors.ts";
import type { UnifiedSchema } from "../../graphql/mesh.ts";
import { redactCredentials, type Telemetry } from "../../telemetry/telemetry.ts";
import { readConfigText } from "./config-file.ts";
import { describeError } from "./open-backend.ts";
import type { Shell } from "./shell.ts";

/** What /graphql serves where the configuration names no other file. */
const defaultMeshrc = relative("", fileURLToPath(new URL("../../../.meshrc.yaml", import.meta.url)));

interface GraphqlLoader {
  /** @throws {ConfigError} what is wrong with the file or one of its sources */
  readonly load: () => Promise<UnifiedSchema>;
  /** For an operator, in one line. */
  readonly state: () => string;
  /** The file holds something else than what is served, which stays until a restart. */
  readonly isOutdated: () => boolean;
}

/** What keeps the file from being served, each in a line. Reads its sources once. */
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

/** A file that is no Mesh configuration is logged at once; what only its sources can tell, when it is loaded. */
export function createGraphqlLoader(
  { mesh: file = defaultMeshrc }: Pick<Config, "mesh">,
  shell: Shell,
  telemetry: Telemetry,
): GraphqlLoader {
  let state = "not asked for yet";
  let served: string | undefined;
  const tell = (error: unknown) => {
    state = redactCredentials(toErrorMessage(error)).replaceAll("\n", "; ");
  };
  try {
    parseMeshrc(readConfigText(file, shell), file);
  } catch (error) {
    tell(error);
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
      tell(error);
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
