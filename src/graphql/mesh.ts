// From `.meshrc.yaml` to the schema behind /graphql. Mesh is half of the program's memory and takes a second to load,
// so nothing here is imported before GraphQL is first asked for, and a file that is wrong breaks GraphQL alone.
import { dirname, resolve } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { getMesh } from "@graphql-mesh/runtime";
import type { defaultImportFn } from "@graphql-mesh/utils";
import type { GraphQLSchema } from "graphql";
import { ownSource, parseMeshrc } from "../config/mesh-config.ts";
import { ConfigError, toErrorMessage } from "../core/errors.ts";
import type { LogEvent } from "../store/backend.ts";
import { schema } from "./schema.ts";
import { boundSourceFetch } from "./source-fetch.ts";

/** A schema that can be served, and what its resolvers need around them. */
export interface UnifiedSchema {
  readonly schema: GraphQLSchema;
  readonly plugins: Readonly<Awaited<ReturnType<typeof getMesh>>["plugins"]>;
  /** Fields are delegated to their sources, and not resolved in place. */
  readonly stitched: boolean;
}

interface MeshOptions {
  /** The path of the file, for its messages and for the paths in it. */
  readonly file: string;
  readonly text: string;
  readonly log: (event: LogEvent) => void;
}

/**
 * Stands in for the handler that the file names for our own source: the schema is the one running, wherever the file
 * lies, and the handler of GraphQL servers, which is 25 MB, is loaded only for those who have one.
 */
class TelemetryHandler {
  async getMeshSource() {
    return { schema };
  }
}
const ownHandler = "readout-telemetry";
const ownLogger = "readout-log";

/** Mesh takes parts by the names of modules; these two are no modules. */
function createModuleImporter(logger: Logger, importOther: typeof defaultImportFn): typeof defaultImportFn {
  return async (path) => {
    if (path.endsWith(ownHandler)) return { default: TelemetryHandler };
    if (path.endsWith(ownLogger)) return { default: logger };
    return importOther(path);
  };
}

/** Mesh's modules one after another: each holds up all other requests while it is loaded, and they come in between. */
async function importMesh() {
  const utils = await import("@graphql-mesh/utils");
  await nextTurn();
  const store = await import("@graphql-mesh/store");
  await nextTurn();
  const runtime = await import("@graphql-mesh/runtime");
  await nextTurn();
  const config = await import("@graphql-mesh/config");
  await nextTurn();
  return { ...utils, ...store, ...runtime, ...config };
}

/** Reads every source once. @throws {ConfigError} what is wrong with the file or a source, for an operator to read */
export async function loadMesh({ file, text, log }: MeshOptions): Promise<UnifiedSchema> {
  const written = parseMeshrc(text, file);
  // Ours comes last: of a field that several sources have, the last one's answers. No source of a reader's may take the
  // place of those that ask what a token may see.
  const isOwn = ({ name }: { readonly name: string }) => name === ownSource;
  const sources = [
    ...written.sources.filter((source) => !isOwn(source)),
    ...written.sources.filter(isOwn).map((source) => ({ ...source, handler: { [ownHandler]: {} } })),
  ];
  const { defaultImportFn, getMesh, InMemoryStoreStorageAdapter, MeshStore, processConfig } =
    await importMesh();
  const told: string[] = [];
  const logger = createLogger(log, told);
  try {
    const dir = resolve(dirname(file));
    const storage = new InMemoryStoreStorageAdapter();
    const config = await processConfig(
      { logger: ownLogger, ...written, sources },
      // In memory, as in development: sources are read anew at each start, and nothing is written.
      {
        dir,
        importFn: createModuleImporter(logger, defaultImportFn),
        store: new MeshStore(dir, storage, { readonly: false, validate: false }),
      },
    );
    const fetchFn = boundSourceFetch(config.fetchFn ?? fetch);
    const mesh = await getMesh({ ...config, logger, fetchFn });
    const stitched = mesh.rawSources.length > 1;
    // Of Mesh's plug-ins those that give resolvers their context, and the file's own. The others are an executor, which
    // the gateway has, and one that shows clients the stack of an error.
    const plugins = new Set([
      ...mesh.plugins.filter((plugin) => plugin.onContextBuilding !== undefined),
      ...(config.additionalEnvelopPlugins ?? []),
    ]);
    return { schema: mesh.schema, plugins: [...plugins], stitched };
  } catch (error) {
    const reason = told.length > 0 ? told.join("; ") : toErrorMessage(error);
    throw new ConfigError(file, [{ path: "", message: takeFirstLine(reason) }]);
  }
}

type Logger = NonNullable<Parameters<typeof getMesh>[0]["logger"]>;

/** Mesh tells which source failed, and why, to its logger only. */
function createLogger(log: MeshOptions["log"], told: string[], source?: string): Logger {
  const write =
    (level: LogEvent["level"]) =>
    (...args: readonly unknown[]): void => {
      const message = args.map((arg) => (arg instanceof Error ? arg.message : String(arg))).join(" ");
      if (level === "error") told.push(source === undefined ? message : `source ${source}: ${message}`);
      log({ level, message: "mesh", source, told: message });
    };
  return {
    name: source ?? "mesh",
    log: write("info"),
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
    // Mesh's debugging is of Mesh, and costs more than what it serves.
    debug: () => {},
    child: (name) => createLogger(log, told, typeof name === "string" ? source : String(name.source)),
  };
}

function takeFirstLine(text: string): string {
  return text.replace(/\s*\n[\s\S]*$/, "");
}
