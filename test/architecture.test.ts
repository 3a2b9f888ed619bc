// Who may import what, as data. The table is the design: changing it is a decision, not a repair.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, matchesGlob, normalize, relative } from "node:path";
import { describe, expect, test } from "vitest";

const root = new URL("..", import.meta.url).pathname;

/** First match wins. `*` within a segment. What a file imports from its own folder is its own business. */
const allowed: readonly (readonly [file: string, imports: readonly string[]])[] = [
  ["src/{time,errors}.ts", []],
  ["src/explain.ts", ["type src/{errors,time}.ts"]],
  ["src/model.ts", ["type src/time.ts"]],
  ["src/logql/*", ["src/model.ts", "src/errors.ts"]],
  ["src/reader.ts", ["type src/{model,time}.ts"]],
  [
    "src/store.ts",
    ["src/model.ts", "src/time.ts", "src/errors.ts", "src/logql/ast.ts", "type src/reader.ts"],
  ],
  ["src/samples.ts", ["src/model.ts", "src/time.ts"]],
  ["src/metrics.ts", ["src/{model,samples,time}.ts"]],
  ["src/kubernetes.ts", ["src/{model,time}.ts", "type src/store.ts"]],
  [
    "src/tracing/*",
    ["src/{model,time,errors,store,reader,explain}.ts", "src/logql/{ast,parse,print,scan}.ts"],
  ],
  ["src/yaml.ts", ["src/errors.ts"]],
  ["src/{spelling,numeral,decimal,parallel,url}.ts", []],
  ["src/issues.ts", ["src/spelling.ts", "type src/yaml.ts"]],
  ["src/config.ts", ["src/{errors,time,yaml,issues,numeral,profiles,url}.ts"]],
  ["src/profiles.ts", ["src/{errors,issues,yaml}.ts", "type src/store.ts"]],
  ["src/traced.ts", ["type src/time.ts"]],
  ["src/otlp.ts", ["src/traced.ts", "src/errors.ts", "type src/{config,store,time}.ts"]],
  ["src/telemetry.ts", ["src/errors.ts", "src/time.ts", "type src/{store,traced}.ts"]],
  [
    "src/{sites,auth}.ts",
    ["src/store.ts", "type src/reader.ts", "type src/{config,rate}.ts", "src/errors.ts", "src/time.ts"],
  ],
  [
    "src/operations/*",
    [
      ...[
        "src/store.ts",
        "type src/reader.ts",
        "src/sites.ts",
        "type src/config.ts",
        "src/logql/*",
        "src/tracing/*",
      ],
      ...["src/{metrics,model,parallel,decimal,time,errors,explain}.ts", "type src/{auth,visual}.ts"],
    ],
  ],
  [
    "src/tailing/*",
    [
      ...["src/operations/*", "src/logql/*", "src/errors.ts", "src/time.ts"],
      "type src/{store,model,auth,config,answer}.ts",
    ],
  ],
  [
    "src/server.ts",
    [
      "src/tailing/*",
      ...["src/operations/*", "src/auth.ts", "src/errors.ts", "src/telemetry.ts", "src/time.ts"],
      "type src/{config,sites,session,mesh,visual}.ts",
      "src/{gateway,pages,connections,exchange,answer,rest,traced}.ts",
      "type src/intake.ts",
    ],
  ],
  [
    "src/rest.ts",
    [
      ...["src/operations/*", "src/tailing/*", "src/{auth,errors,exchange,answer,traced}.ts"],
      "type src/{config,telemetry}.ts",
    ],
  ],
  ["src/connections.ts", ["type src/time.ts"]],
  ["src/exchange.ts", ["src/auth.ts", "src/errors.ts", "src/operations/work.ts"]],
  ["src/answer.ts", ["type src/exchange.ts", "src/operations/failure.ts"]],
  ["src/session.ts", ["type src/sites.ts", "type src/operations/*"]],
  ["src/apps.ts", ["type src/session.ts", "type src/sites.ts"]],
  ["src/links.ts", ["src/apps.ts", "src/operations/*", "src/time.ts", "type src/session.ts"]],
  ["src/graphql.ts", ["src/operations/*", "src/links.ts", "type src/session.ts"]],
  ["src/intake-document.ts", ["src/operations/describe.ts"]],
  ["src/openapi.ts", ["src/operations/*", "src/intake-document.ts"]],
  ["src/pages.ts", ["src/openapi.ts", "src/operations/accept.ts", "type src/operations/*"]],
  // Browsers load these from their own folder and from nowhere else.
  ["src/console/*", []],
  ["src/meshrc.ts", ["src/errors.ts", "src/yaml.ts"]],
  ["src/mesh.ts", ["src/errors.ts", "src/meshrc.ts", "src/graphql.ts", "type src/store.ts"]],
  [
    "src/gateway.ts",
    [
      ...["src/operations/*", "type src/auth.ts", "type src/config.ts", "type src/sites.ts"],
      ...["type src/mesh.ts", "type src/session.ts"],
    ],
  ],
  ["src/visual.ts", ["src/errors.ts", "src/time.ts"]],
  ["src/gallery.ts", ["src/visual.ts", "src/errors.ts", "type src/store.ts", "type src/time.ts"]],
  ["src/rate.ts", ["type src/time.ts"]],
  ["src/report.ts", ["src/model.ts", "src/time.ts"]],
  // The way of a report: taken in, spooled in a thread, delivered.
  ["src/{spool,spooler,thread}.ts", ["src/{spool,spooler,time}.ts"]],
  [
    "src/{intake,delivery}.ts",
    [
      ...["type src/{store,config,sites,model,spool,spooler,telemetry}.ts"],
      ...["src/report.ts", "src/rate.ts", "src/errors.ts", "src/time.ts", "src/connections.ts"],
    ],
  ],
  ["src/cli/*", ["src/*", "src/operations/*", "src/logql/*", "resolvers/index.ts"]],
  ["src/cache.js", []],
  ["src/readout.js", ["src/{cache.js,main.ts}"]],
  ["src/main.ts", ["**"]],
  ["resolvers/index.ts", ["src/store.ts", "resolvers/*/*"]],
  ["resolvers/connection.ts", ["type src/store.ts", "src/{issues,time,numeral}.ts"]],
  ["resolvers/isolation.ts", ["type src/time.ts"]],
  ["resolvers/http.ts", ["src/{store,errors,explain,time,traced}.ts", "resolvers/isolation.ts"]],
  [
    "resolvers/*/*",
    [
      "src/{store,reader,model,time,errors,explain,traced,metrics,samples,kubernetes,parallel,telemetry,report,issues,numeral,decimal,url}.ts",
      "src/logql/*",
      "src/tracing/*",
      "resolvers/{connection,http}.ts",
    ],
  ],
];

/** Where each package belongs. */
const packages: Readonly<Record<string, readonly string[]>> = {
  "@elastic/elasticsearch": ["resolvers/elastic/*"],
  "@opensearch-project/opensearch": ["resolvers/elastic/*"],
  "@escape.tech/graphql-armor": ["src/gateway.ts"],
  "@graphql-mesh/config": ["src/mesh.ts"],
  "@graphql-mesh/runtime": ["src/mesh.ts"],
  "@graphql-mesh/store": ["src/mesh.ts"],
  "@graphql-mesh/utils": ["src/mesh.ts"],
  "@graphql-yoga/render-graphiql": ["src/pages.ts"],
  "@graphql-yoga/plugin-csrf-prevention": ["src/gateway.ts"],
  dataloader: ["src/links.ts"],
  graphql: ["src/{graphql,links,mesh,gateway}.ts", "src/cli/schema.ts"],
  "graphql-jit": ["src/gateway.ts"],
  // The server knows the type of a plug-in; what is loaded is the gateway's affair.
  "graphql-yoga": ["src/server.ts", "src/gateway.ts"],
  croner: ["src/operations/check_ins.ts"],
  cronstrue: ["src/operations/check_ins.ts"],
  "lru-cache": ["resolvers/*/*"],
  pino: ["src/telemetry.ts"],
  "prom-client": ["src/telemetry.ts"],
  undici: ["resolvers/prometheus/door.ts"],
  yaml: ["src/yaml.ts", "src/visual.ts", "resolvers/elastic/{layout,profile}.ts"],
  zod: [
    "src/{config,issues,profiles,meshrc,intake-document,url,visual}.ts",
    "src/operations/*",
    "src/tracing/digest.ts",
    "resolvers/connection.ts",
    "resolvers/*/*",
  ],
};

/** What the server puts into the console's folder, from elsewhere. */
const served = ["src/console/uplot.js", "src/console/normalise.js"];

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

function within(file: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => matchesGlob(file, pattern));
}

describe("imports", () => {
  test.each(files)("%s", (file) => {
    const [, rules] = allowed.find(([pattern]) => matchesGlob(file, pattern)) ?? [];
    expect(rules, "no rule is for this file").toBeDefined();
    const broken = own
      .filter(({ from, to, typeOnly }) => {
        if (
          from !== file ||
          (dirname(to) === dirname(file) && dirname(file) !== "src" && dirname(file) !== "resolvers")
        )
          return false;
        const plain = rules?.filter((rule) => !rule.startsWith("type ")) ?? [];
        const types = rules?.flatMap((rule) => (rule.startsWith("type ") ? [rule.slice(5)] : [])) ?? [];
        return !within(to, plain) && !(typeOnly && within(to, types));
      })
      .map(({ to, typeOnly }) => (typeOnly ? `type ${to}` : to));
    expect(broken).toEqual([]);
  });

  test("end in .ts or .js and name files that exist", () => {
    const inside = imports.filter(({ to }) => /^(src|resolvers)\//.test(to) || to.startsWith("."));
    expect(inside.filter(({ to }) => !files.includes(to) && !served.includes(to))).toEqual([]);
  });

  test("packages are used where they belong", () => {
    const foreign = imports.filter(
      ({ to }) => !files.includes(to) && !to.startsWith("node:") && !/^(src|resolvers|\.)/.test(to),
    );
    const astray = foreign.filter(({ from, to }) => !within(from, packages[to] ?? []));
    expect(astray.map(({ from, to }) => `${from} imports ${to}`)).toEqual([]);
  });

  test("make no cycles", () => {
    const after = new Map(
      files.map((file) => [file, own.filter(({ from }) => from === file).map(({ to }) => to)]),
    );
    const finished = new Set<string>();
    const visit = (file: string, path: readonly string[]): string[] => {
      if (path.includes(file)) return [[...path.slice(path.indexOf(file)), file].join(" → ")];
      if (finished.has(file)) return [];
      const cycles = (after.get(file) ?? []).flatMap((next) => visit(next, [...path, file]));
      finished.add(file);
      return cycles;
    };
    expect(files.flatMap((file) => visit(file, []))).toEqual([]);
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
    const allowed = ["src/main.ts", "src/time.ts"];
    const reading = users(/\bDate\.now\b|\bnew Date\s*\(/).filter((file) => !file.startsWith("src/console/"));
    expect(reading.filter((file) => !allowed.includes(file))).toEqual([]);
  });

  // V8 takes them at its start only, so they cannot stand in one place.
  test("whoever starts the program gives node the flags of the first line of readout.js", () => {
    const read = (file: string) => readFileSync(join(root, file), "utf8");
    const flags = read("src/readout.js").split("\n", 1).join().match(/--\S+/g) ?? [];
    expect(flags).not.toEqual([]);
    const { start, readout } = JSON.parse(read("package.json")).scripts;
    const subjects = ["bench/subject.ts", "test/support/program.ts"].map(read);
    for (const text of [start, readout, read("Dockerfile"), read("deploy/readout.service"), ...subjects]) {
      expect(flags.filter((flag) => !text.includes(flag))).toEqual([]);
    }
  });

  test("no file is longer than 600 lines", () => {
    const long = files.filter((file) => readFileSync(join(root, file), "utf8").split("\n").length > 601);
    expect(long).toEqual([]);
  });
});
