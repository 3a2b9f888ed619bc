// Which folder may import which, as data. The table is the design: changing it is a decision, not a repair.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, matchesGlob, normalize, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

/**
 * Which folders each folder may import, first match wins. Those in `types` it may import for their types alone.
 * Patterns: `*` within a segment, `{a,b}` either, `/**` a folder and all below it.
 */
const layers: readonly Layer[] = [
  { folder: "src", imports: ["resolvers", "src/cli/**", "src/files", "src/core/**"] },
  {
    folder: "src/cli/**",
    imports: [
      "src/cli/**",
      "src/{server,graphql,intake,visuals,audit,access,telemetry,config,config/yaml,core,core/*}",
      "src/operations/**",
      "src/metrics",
      "src/tracing/{figures,rollup-store}",
    ],
    types: ["src/store"],
  },
  {
    folder: "src/server",
    imports: ["src/{tail,intake,graphql,mcp,http,access,telemetry,core,core/*}", "src/operations/runtime"],
    types: ["src/{visuals,audit,config}"],
  },
  { folder: "src/audit", imports: ["src/{core,telemetry}"], types: ["src/config"] },
  {
    folder: "src/tail",
    imports: ["src/operations/{logs,runtime}", "src/{access,log-query,core,core/*}"],
    types: ["src/{http,config,store}"],
  },
  {
    folder: "src/intake",
    imports: ["src/{http,access,core,core/*}", "src/operations/runtime"],
    types: ["src/{telemetry,config,store}"],
  },
  {
    folder: "src/graphql/lists",
    imports: ["src/core", "src/core/async"],
    types: ["src/operations/runtime"],
  },
  {
    folder: "src/graphql/existing-clients",
    imports: ["src/graphql/lists", "src/operations/**", "src/{log-query,core,core/*}"],
    types: ["src/access"],
  },
  {
    folder: "src/graphql",
    imports: ["src/graphql/{existing-clients,lists}", "src/operations/**", "src/{files,config,core,core/*}"],
    types: ["src/{access,store}"],
  },
  {
    folder: "src/mcp",
    imports: ["src/operations/runtime", "src/operations", "src/log-query", "src/core/**"],
    types: ["src/{access,config}"],
  },
  {
    folder: "src/http",
    imports: ["src/{access,core,core/*}", "src/operations/runtime"],
    types: ["src/config"],
  },
  {
    folder: "src/operations",
    imports: ["src/{operations,tracing}/**", "src/{log-query,core,core/*}"],
    types: ["src/store"],
  },
  {
    folder: "src/operations/runtime",
    imports: ["src/{access,telemetry,log-query,core,core/*}"],
    types: ["src/{visuals,config,store}"],
  },
  {
    folder: "src/operations/*",
    imports: ["src/operations/runtime", "src/tracing/**", "src/{metrics,log-query,core,core/*}"],
    types: ["src/{visuals,access,config,store}"],
  },
  { folder: "src/tracing/spans", imports: ["src/{telemetry,core,core/*}"], types: ["src/store"] },
  { folder: "src/tracing/listing", imports: ["src/tracing/spans", "src/{store,log-query,core,core/async}"] },
  {
    folder: "src/tracing/rollup-store",
    imports: ["src/tracing/{rollups,spans}", "src/core/**"],
    types: ["src/store"],
  },
  {
    folder: "src/tracing/rollups",
    imports: ["src/tracing/spans", "src/{telemetry,core,core/*}"],
    types: ["src/store"],
  },
  {
    folder: "src/tracing/figures",
    imports: ["src/tracing", "src/tracing/{rollup-store,rollups,spans}", "src/core/**"],
    types: ["src/store"],
  },
  {
    folder: "src/tracing",
    imports: ["src/tracing/{listing,spans}", "src/core/**"],
    types: ["src/store"],
  },
  { folder: "src/access", imports: ["src/{federation,core,core/*}"], types: ["src/{config,store}"] },
  {
    folder: "src/federation",
    imports: ["src/{tracing,metrics,store,core,core/*}"],
    types: ["src/config"],
  },
  { folder: "src/telemetry", imports: ["src/core/**"], types: ["src/{config,store}"] },
  { folder: "src/config", imports: ["src/config/yaml", "src/core/**"], types: ["src/store"] },
  { folder: "src/config/yaml", imports: ["src/core/**"] },
  { folder: "src/visuals", imports: ["src/config/yaml", "src/files", "src/core/**"], types: ["src/store"] },
  { folder: "src/files", imports: ["src/core"], types: ["src/store"] },
  { folder: "src/store", imports: ["src/core/**"], types: ["src/{log-query,metrics}"] },
  { folder: "src/{log-query,metrics}", imports: ["src/core/**"] },
  { folder: "src/core/json", imports: ["src/core/async"], types: ["src/core"] },
  { folder: "src/core/async", imports: ["src/core"] },
  { folder: "src/core", imports: [] },
  // Browsers load the console from its own folder and from nowhere else.
  { folder: "src/console", imports: ["src/console/*"] },
  { folder: "src/console/{base,search,metrics,sign-in}", imports: ["src/console/base"] },
  { folder: "src/console/logs", imports: ["src/console/{base,search}"] },
  { folder: "src/console/*", imports: ["src/console/{base,search,logs}"] },
  {
    folder: "resolvers",
    imports: ["resolvers/{elastic,memory,prometheus,http}", "src/{tracing,log-query,core}"],
    types: ["src/store"],
  },
  { folder: "resolvers/http", imports: ["src/{telemetry,config,core,core/*}"], types: ["src/store"] },
  {
    folder: "resolvers/elastic",
    imports: ["resolvers/elastic/*", "resolvers/http", "src/tracing/rollup-store", "src/{config,core}"],
    types: ["src/{store,core/json}"],
  },
  {
    folder: "resolvers/elastic/rollups",
    imports: ["resolvers/elastic/client", "src/core/**"],
    types: ["src/store"],
  },
  {
    folder: "resolvers/elastic/snapshot",
    imports: ["resolvers/elastic/client", "src/core/**"],
    types: ["resolvers/elastic/mapping", "src/store"],
  },
  {
    folder: "resolvers/elastic/{logs,spans}",
    imports: [
      "resolvers/elastic/{snapshot,search,query,layout,mapping,document,client}",
      "src/tracing/**",
      "src/{telemetry,log-query,core,core/*}",
    ],
    types: ["src/store"],
  },
  {
    folder: "resolvers/elastic/search",
    imports: ["resolvers/elastic/{query,layout,mapping,document,client}", "resolvers/http", "src/core/**"],
    types: ["src/{log-query,store}"],
  },
  {
    folder: "resolvers/elastic/query",
    imports: [
      "resolvers/elastic/{layout,mapping,client}",
      "src/tracing/spans",
      "src/{log-query,core,core/*}",
    ],
    types: ["src/store"],
  },
  {
    folder: "resolvers/elastic/layout",
    imports: ["resolvers/elastic/{mapping,document}", "src/tracing/spans", "src/{log-query,core,core/*}"],
    types: ["resolvers/elastic/client", "src/store"],
  },
  { folder: "resolvers/elastic/mapping", imports: ["resolvers/elastic/client", "src/core/**"] },
  { folder: "resolvers/elastic/document", imports: ["src/core/**"] },
  {
    folder: "resolvers/{elastic,prometheus}/client",
    imports: ["resolvers/http", "src/{telemetry,metrics,core,core/*}"],
    types: ["src/store"],
  },
  {
    folder: "resolvers/prometheus",
    imports: ["resolvers/prometheus/*", "resolvers/http", "src/{config,core,core/*}"],
    types: ["src/store"],
  },
  {
    folder: "resolvers/prometheus/kubernetes",
    imports: ["resolvers/prometheus/{counters,client}", "src/{store,core,core/*}"],
  },
  {
    folder: "resolvers/prometheus/metrics",
    imports: ["resolvers/prometheus/{settled,counters,client}", "src/{telemetry,metrics,core,core/*}"],
    types: ["src/store"],
  },
  {
    folder: "resolvers/prometheus/settled",
    imports: ["resolvers/prometheus/counters", "src/{telemetry,core,core/*}"],
  },
  {
    folder: "resolvers/prometheus/counters",
    imports: ["resolvers/prometheus/client", "src/{metrics,core,core/*}"],
  },
  {
    folder: "resolvers/memory",
    imports: ["resolvers/memory/*", "src/{config,core,core/*}"],
    types: ["src/store"],
  },
  {
    folder: "resolvers/memory/demo",
    imports: ["src/core/**"],
    types: ["resolvers/memory/stores", "src/store"],
  },
  {
    folder: "resolvers/memory/stores",
    imports: ["src/tracing/**", "src/{store,telemetry,metrics,log-query,core,core/*}"],
  },
];

/** Where each package belongs: folders, or single files. */
const packages: Readonly<Record<string, readonly string[]>> = {
  aws4: ["resolvers/http/aws.ts"],
  "@modelcontextprotocol/server": ["src/mcp/agent-server.ts"],
  "@elastic/elasticsearch": ["resolvers/elastic/client"],
  "@opensearch-project/opensearch": ["resolvers/elastic/client"],
  "@escape.tech/graphql-armor": ["src/graphql/query-bounds.ts"],
  "@graphql-mesh/config": ["src/graphql/mesh.ts"],
  "@graphql-mesh/runtime": ["src/graphql/{mesh,source-fetch}.ts"],
  "@graphql-mesh/store": ["src/graphql/mesh.ts"],
  "@graphql-mesh/utils": ["src/graphql/mesh.ts"],
  "@graphql-yoga/render-graphiql": ["src/server/pages.ts"],
  "@graphql-yoga/plugin-csrf-prevention": ["src/graphql/gateway.ts"],
  dataloader: ["src/graphql/links.ts", "src/graphql/existing-clients"],
  graphql: ["src/graphql/**", "src/cli/schema.ts"],
  "graphql-jit": ["src/graphql/gateway.ts"],
  // The server knows the type of a plug-in; what is loaded is the gateway's affair.
  "graphql-yoga": [
    "src/server/graphql-host.ts",
    "src/graphql/{answer-errors,gateway,event-stream,query-bounds,query-rules}.ts",
  ],
  croner: ["src/operations/check-ins.ts"],
  cronstrue: ["src/operations/check-ins.ts"],
  jose: ["src/access"],
  "lru-cache": [
    "src/access/jwt.ts",
    "src/graphql/query-bounds.ts",
    "resolvers/elastic/{search,spans}",
    "resolvers/prometheus/{client,metrics,settled}",
  ],
  pino: ["src/telemetry/telemetry.ts"],
  "prom-client": ["src/telemetry"],
  undici: ["resolvers/prometheus/client/transport.ts"],
  yaml: ["src/config/yaml", "resolvers/elastic/layout"],
  zod: [
    "src/access/signing-keys.ts",
    "src/config",
    "src/federation/federated-snapshot.ts",
    "src/operations/**",
    "src/intake/openapi.ts",
    "src/visuals/visual.ts",
    "src/graphql/document-directory.ts",
    "src/telemetry/otlp-request.ts",
    "src/tracing/spans/digest.ts",
    "src/tracing/figures/stored-figures.ts",
    "src/tracing/rollup-store",
    "src/mcp",
    "resolvers/**",
  ],
};

/** What the server puts into the console's folder, from elsewhere. */
const served = [
  "src/console/metrics/uplot.js",
  "src/console/traces/normalise.js",
  "src/console/map/dagre.js",
  "src/console/sign-in/oauth4webapi.js",
];

interface Layer {
  readonly folder: string;
  readonly imports: readonly string[];
  readonly types?: readonly string[];
}

interface Import {
  readonly from: string;
  /** A path in the project, or a package's name. */
  readonly to: string;
  readonly typeOnly: boolean;
}

const files = filesIn("src", "resolvers");
const code = codeOf(files);
const imports = [...code].flatMap(([file, text]) => importsOf(file, text));
const own = imports.filter(({ to }) => files.includes(to));
const folders = [...new Set(files.map((file) => dirname(file)))].sort();
const layerOf = new Map(
  folders.map((folder) => [folder, layers.find((layer) => isMatch(folder, layer.folder))]),
);

function filesIn(...folders: readonly string[]): string[] {
  return folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((file) => /(?<!\.d)\.(ts|js)$/.test(file))
      .map((file) => `${folder}/${file}`),
  );
}

function codeOf(files: readonly string[]): ReadonlyMap<string, string> {
  return new Map(files.map((file) => [file, withoutComments(readFileSync(join(root, file), "utf8"))]));
}

function importsOf(from: string, text: string): Import[] {
  const found: Import[] = [];
  const statements = /^(?:import|export)\s+(type\s)?(?:[^"';]*?\sfrom\s+)?"([^"]+)";/gm;
  for (const [statement, type, target = ""] of text.matchAll(statements)) {
    const names = /\{([^}]*)\}/
      .exec(statement)?.[1]
      ?.split(",")
      .filter((name) => name.trim() !== "") ?? [""];
    const typeOnly = type !== undefined || names.every((name) => name.trim().startsWith("type "));
    found.push({ from, to: resolve(from, target), typeOnly });
  }
  for (const [, target = ""] of text.matchAll(/\bimport\("([^"]+)"\)/g)) {
    found.push({ from, to: resolve(from, target), typeOnly: false });
  }
  return found;
}

function resolve(from: string, target: string): string {
  if (target.startsWith("#")) return target.slice(1);
  return target.startsWith(".") ? relative("", normalize(join(dirname(from), target))) : target;
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|[\s;{}(,])\/\/.*$/gm, "$1");
}

/** `folder/**` holds the folder itself too. */
function isMatch(path: string, pattern: string): boolean {
  return matchesGlob(path, pattern) || (pattern.endsWith("/**") && matchesGlob(path, pattern.slice(0, -3)));
}

function within(file: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => isMatch(file, pattern));
}

/** The patterns that one with braces stands for. */
function listAlternatives(pattern: string): string[] {
  const [, before, parts, after] = /^(.*?)\{([^}]*)\}(.*)$/.exec(pattern) ?? [];
  if (parts === undefined) return [pattern];
  return parts.split(",").flatMap((part) => listAlternatives(`${before}${part}${after}`));
}

/** Each way from a name over others back to itself. */
function cyclesOf(edges: readonly (readonly [from: string, to: string])[]): string[] {
  const after = new Map<string, Set<string>>();
  for (const [from, to] of edges) after.set(from, (after.get(from) ?? new Set()).add(to));
  const finished = new Set<string>();
  const visit = (name: string, path: readonly string[]): string[] => {
    if (path.includes(name)) return [[...path.slice(path.indexOf(name)), name].join(" → ")];
    if (finished.has(name)) return [];
    const cycles = [...(after.get(name) ?? [])].flatMap((next) => visit(next, [...path, name]));
    finished.add(name);
    return cycles;
  };
  return [...after.keys()].flatMap((name) => visit(name, []));
}

describe("imports", () => {
  test.each(folders)("%s", (folder) => {
    const layer = layerOf.get(folder);
    expect(layer, "no rule is for this folder").toBeDefined();
    const { imports = [], types = [] } = layer ?? {};
    const broken = own
      .filter(({ from, to }) => dirname(from) === folder && dirname(to) !== folder)
      .filter(
        ({ to, typeOnly }) => !within(dirname(to), imports) && !(typeOnly && within(dirname(to), types)),
      )
      .map(({ from, to, typeOnly }) => `${from} imports ${typeOnly ? "type " : ""}${to}`);
    expect(broken).toEqual([]);
  });

  test("each rule is for a folder that exists", () => {
    const used = new Set(layerOf.values());
    expect(layers.filter((layer) => !used.has(layer))).toEqual([]);
  });

  test("each permission is used", () => {
    const unused = layers.flatMap((layer) => {
      const leaving = own.filter(
        ({ from, to }) => layerOf.get(dirname(from)) === layer && dirname(from) !== dirname(to),
      );
      const listUnused = (patterns: readonly string[], permitted: readonly Import[]) => {
        const targets = [...new Set(permitted.map(({ to }) => dirname(to)))];
        return patterns
          .flatMap(listAlternatives)
          .filter((pattern) => !targets.some((target) => isMatch(target, pattern)));
      };
      const { folder, imports, types = [] } = layer;
      const runtime = leaving.filter(({ typeOnly }) => !typeOnly);
      return [...listUnused(imports, runtime), ...listUnused(types, leaving)].map(
        (pattern) => `${folder} does not import ${pattern}`,
      );
    });
    expect(unused).toEqual([]);
  });

  test("end in .ts or .js and name files that exist", () => {
    const inside = imports.filter(({ to }) => /^(src|resolvers)\//.test(to) || to.startsWith("."));
    expect(inside.filter(({ to }) => !files.includes(to) && !served.includes(to))).toEqual([]);
  });

  test("packages are used where they belong", () => {
    const foreign = imports.filter(
      ({ to }) => !files.includes(to) && !to.startsWith("node:") && !/^(src|resolvers|\.)/.test(to),
    );
    const astray = foreign.filter(
      ({ from, to }) => !within(from, packages[to] ?? []) && !within(dirname(from), packages[to] ?? []),
    );
    expect(astray.map(({ from, to }) => `${from} imports ${to}`)).toEqual([]);
  });

  test("make no cycles between files", () => {
    expect(cyclesOf(own.map(({ from, to }) => [from, to]))).toEqual([]);
  });

  test("make no cycles between folders", () => {
    const between = own.map(({ from, to }) => [dirname(from), dirname(to)] as const);
    expect(cyclesOf(between.filter(([from, to]) => from !== to))).toEqual([]);
  });
});

test("what a file exports is named in another one that imports it", () => {
  const readers = [...code, ...codeOf(filesIn("test", "bench"))].map(([from, text]) => ({
    text,
    targets: new Set(importsOf(from, text).map(({ to }) => to)),
  }));
  const unused = [...code].flatMap(([file, text]) => {
    const importing = readers.filter(({ targets }) => targets.has(file));
    const names = [...text.matchAll(/^export (?:async )?(?:function\*?|const|class|interface|type) (\w+)/gm)];
    return names
      .map(([, name = ""]) => name)
      .filter((name) => !importing.some((reader) => new RegExp(`\\b${name}\\b`).test(reader.text)))
      .map((name) => `${file} exports ${name}`);
  });
  expect(unused).toEqual([]);
});

describe("the outside world", () => {
  const users = (pattern: RegExp): string[] => files.filter((file) => pattern.test(code.get(file) ?? ""));

  test("only main.ts touches process, and what leads to it", () => {
    expect(users(/(?<![\w.#"'-])process\s*[.[]|"(node:)?process"/)).toEqual([
      "src/main.ts",
      "src/readout.js",
    ]);
  });

  test("only time.ts and main.ts read the clock or make dates, and the console, in its browser", () => {
    const allowed = ["src/main.ts", "src/core/time.ts"];
    const reading = users(/\bDate\.now\b|\bnew Date\s*\(/).filter((file) => !file.startsWith("src/console/"));
    expect(reading.filter((file) => !allowed.includes(file))).toEqual([]);
  });

  // V8 takes them at its start only, so they cannot stand in one place.
  test("whoever starts the program gives node the flags of readout.js", () => {
    const read = (file: string) => readFileSync(join(root, file), "utf8");
    const flags =
      /^const flags = .*$/m
        .exec(read("src/readout.js"))
        ?.join()
        .match(/--[^"]+/g) ?? [];
    expect(flags).not.toEqual([]);
    const { start, readout } = JSON.parse(read("package.json")).scripts;
    const subjects = ["bench/harness/process.ts", "test/support/process.ts"].map(read);
    for (const text of [start, readout, read("Dockerfile"), read("deploy/readout.service"), ...subjects]) {
      expect(flags.filter((flag) => !text.includes(flag))).toEqual([]);
    }
  });
});
