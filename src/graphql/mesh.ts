// From `.meshrc.yaml` to the schema behind /graphql. Mesh is half of the program's memory and takes a second to load,
// so nothing here is imported before GraphQL is first asked for, and a file that is wrong breaks GraphQL alone.
import { createRequire, registerHooks } from "node:module";
import { dirname, resolve } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { getMesh } from "@graphql-mesh/runtime";
import type { defaultImportFn } from "@graphql-mesh/utils";
import { type GraphQLNamedType, type GraphQLSchema, isScalarType } from "graphql";
import { ownSource, parseMeshrc } from "../config/mesh-config.ts";
import { ConfigError, toErrorMessage } from "../core/errors.ts";
import type { LogEvent } from "../store/backend.ts";
import { completeListsInTurns } from "./lists/list-turns.ts";
import { schema as ownSchema } from "./schema.ts";
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
    return { schema: ownSchema };
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

let isGraphqlShared = false;

/**
 * Has every module that is loaded from now on take our `graphql`. A handler that is installed beside the npm package brings
 * one of its own, and GraphQL refuses types of another one.
 */
function shareGraphql(): void {
  if (isGraphqlShared) return;
  isGraphqlShared = true;
  const ownRequire = createRequire(import.meta.url);
  registerHooks({
    resolve(specifier, context, next) {
      if (!/^graphql(?:\/|$)/.test(specifier) || context.parentURL === import.meta.url)
        return next(specifier, context);
      // `next` looks beside a module that calls `require`, whatever parent it is given.
      return { url: pathToFileURL(ownRequire.resolve(specifier)).href, shortCircuit: true };
    },
  });
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
  shareGraphql();
  const mesh = await importMesh();
  const { defaultImportFn, getMesh, InMemoryStoreStorageAdapter, MeshStore, processConfig } = mesh;
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
    const merger = createStrictMerger(config.merger, file, mesh.applySchemaTransforms);
    const unified = await getMesh({ ...config, merger, logger, fetchFn });
    const stitched = unified.rawSources.length > 1;
    // Of Mesh's plug-ins those that give resolvers their context, and the file's own. The others are an executor, which
    // the gateway has, and one that shows clients the stack of an error.
    const plugins = new Set([
      ...unified.plugins.filter((plugin) => plugin.onContextBuilding !== undefined),
      ...(config.additionalEnvelopPlugins ?? []),
    ]);
    // What our source has completed, a stitched schema completes once more.
    const schema = stitched ? completeListsInTurns(unified.schema, false) : unified.schema;
    return { schema, plugins: [...plugins], stitched };
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    const reason = told.length > 0 ? told.join("; ") : toErrorMessage(error);
    throw new ConfigError(file, [{ path: "", message: takeFirstLine(reason) }]);
  }
}

type MeshModules = Awaited<ReturnType<typeof importMesh>>;
type Merger = Parameters<typeof getMesh>[0]["merger"];
type RawSource = Parameters<Merger["getUnifiedSchema"]>[0]["rawSources"][number];

/**
 * Mesh merges types of one name. A source would then be asked for fields that only the other one has, and these would be null
 * or fail without a reason.
 */
function createStrictMerger(
  merger: Merger,
  file: string,
  transform: MeshModules["applySchemaTransforms"],
): Merger {
  // Under the names that its `transforms` give.
  const listTypes = ({ schema, ...source }: RawSource) =>
    listOwnTypes(transform(schema, { ...source, schema }, schema, source.transforms ?? []));
  return {
    name: merger.name,
    getUnifiedSchema: (context) => {
      const own = context.rawSources.filter(({ name }) => name === ownSource).flatMap(listTypes);
      const ours = new Map(own.map((type) => [type.name, type]));
      const isShared = (type: GraphQLNamedType) => {
        const other = ours.get(type.name);
        return other !== undefined && !(isScalarType(type) && isScalarType(other));
      };
      const problems = context.rawSources
        .filter(({ name }) => name !== ownSource)
        .map((source) => ({ name: source.name, shared: listTypes(source).filter(isShared) }))
        .filter(({ shared }) => shared.length > 0)
        .map(({ name, shared }) => ({ path: "", message: describeSharedTypes(name, shared) }));
      if (problems.length > 0) throw new ConfigError(file, problems);
      return merger.getUnifiedSchema(context);
    },
  };
}

/** Without root types, and those that start with `_`, which are of GraphQL and Federation. */
function listOwnTypes(schema: GraphQLSchema): readonly GraphQLNamedType[] {
  const roots = new Set<GraphQLNamedType | null | undefined>([
    schema.getQueryType(),
    schema.getMutationType(),
    schema.getSubscriptionType(),
  ]);
  return Object.values(schema.getTypeMap()).filter((type) => !type.name.startsWith("_") && !roots.has(type));
}

const maxNamed = 10;

function describeSharedTypes(source: string, shared: readonly GraphQLNamedType[]): string {
  const named = shared.slice(0, maxNamed).map(({ name }) => name);
  const names = `${named.join(", ")}${shared.length > maxNamed ? ` and ${shared.length - maxNamed} more` : ""}`;
  return `source ${source}: Readout has types of these names too: ${names}. Give the source a prefix (transforms)`;
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
