// The documents that users read: every example is run or parsed, every table that repeats the code is compared with it,
// every link leads somewhere, and no page is too long. A fenced block of a kind that is not known here is an error.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Script } from "node:vm";
import { parser as promqlParser } from "@prometheus-io/lezer-promql";
import { composeServices } from "@theguild/federation-composition";
import { parse as parseGraphql } from "graphql";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import { parseLogLayout as readLogLayout } from "#resolvers/elastic/layout/log-layout.ts";
import { parseSpanLayout as readSpanLayout } from "#resolvers/elastic/layout/span-layout.ts";
import { commands, printUsage } from "#src/commands.ts";
import { parseConfig } from "#src/config/config.ts";
import { severities } from "#src/core/rows.ts";
import { listSeverityWords } from "#src/core/severity-words.ts";
import { schema } from "#src/graphql/schema.ts";
import { printSubgraph } from "#src/graphql/subgraph.ts";
import { parse as parseLogQuery } from "#src/log-query/parse.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { completeExample } from "../release/upgrade-fixture.ts";
import {
  demoToken,
  type ExampleShell,
  type Outcome,
  openExampleShell,
  stackTokenEntry,
  startDemo,
} from "./support/docs/example-shell.ts";
import { exampleWorld } from "./support/docs/example-world.ts";
import { matchesOutput, matchesShape } from "./support/docs/output.ts";
import {
  type Block,
  findBrokenLinks,
  listCode,
  readContributorPages,
  readPage,
  readTable,
  readUserPages,
} from "./support/docs/pages.ts";

const pages = readUserPages();
const blocks = pages.flatMap((page) => page.blocks);
const ofKind = (kind: string): readonly Block[] => blocks.filter((block) => block.kind === kind);
const place = (block: Block): string => `${block.page}:${block.line}`;
const each = (kind: string) => ofKind(kind).map((block) => [place(block), block] as const);

/** What is done with the blocks of a kind. */
const known = [
  "sh",
  "text output",
  "json output",
  "text help",
  "yaml readout",
  "yaml log-layout",
  "yaml span-layout",
  "yaml meshrc",
  "yaml visual",
  "yaml metrics",
  // Run by test/graphql/mesh-alerts.test.ts.
  "yaml meshrc alerts",
  "graphql alerts",
  "yaml elasticsearch-role",
  "yaml opensearch-role",
  "yaml pod",
  "yaml alerts",
  "yaml scrape",
  "yaml",
  "text log-query",
  "text trace-query",
  "graphql",
  "graphql subgraph",
  "js",
  "ts",
  "nginx",
  "dockerfile",
  "json",
] as const;

describe("pages", () => {
  test("every fenced block has a kind that a test knows", () => {
    const isKnown = ({ kind }: Block) =>
      known.some(
        (name) => kind === name || (/^(?:sh status|text help)=/.test(kind) && kind.startsWith(name)),
      );
    expect(
      blocks.filter((block) => !isKnown(block)).map((block) => `${place(block)}: ${block.kind}`),
    ).toEqual([]);
  });

  test("no block is indented instead of fenced", () => {
    const found = pages.flatMap(({ path, prose }) =>
      [...prose.matchAll(/\n\n {4,}(?! *[-*\d])\S.*/g)].map(([line]) => `${path}: ${line.trim()}`),
    );
    expect(found).toEqual([]);
  });

  test("README.md is short", () => {
    const { lines, text } = readPage("README.md");
    expect(lines.length).toBeLessThanOrEqual(200);
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(15_000);
  });

  test("each page has one title and at most 400 lines", () => {
    const wrong = pages.filter(
      ({ lines, prose }) => lines.length > 400 || [...prose.matchAll(/^# /gm)].length !== 1,
    );
    expect(wrong.map(({ path, lines }) => `${path}: ${lines.length}`)).toEqual([]);
  });

  test.each([...pages, ...readContributorPages()].map((page) => [page.path, page] as const))(
    "the links of %s lead to files and headings that exist",
    (_, page) => {
      expect(findBrokenLinks(page)).toEqual([]);
    },
  );

  test("docs/README.md names every page", () => {
    const index = readPage("docs/README.md").text;
    const others = pages
      .map(({ path }) => path)
      .filter((path) => path !== "README.md" && path !== "docs/README.md");
    expect(others.filter((path) => !index.includes(`(${path.slice("docs/".length)})`))).toEqual([]);
  });

  test("a comment within a block begins no section", () => {
    const folder = mkdtempSync(join(tmpdir(), "readout-page-"));
    const path = join(folder, "page.md");
    writeFileSync(path, "# Keys\n\n```sh\n# comment\n```\n\n| key |\n|---|\n| `a` |\n");
    expect(readTable(readPage(path), "Keys")).toEqual([["`a`"]]);
    rmSync(folder, { recursive: true });
  });

  test("the glossary has at most 20 words", () => {
    expect(readTable(readPage("docs/explanation/glossary.md"), "Glossary").length).toBeLessThanOrEqual(20);
  });
});

// ---- What is run ----------------------------------------------------------------------------------------------

/** Blocks of a page that belong to its shell, in their order. */
const isOfShell = ({ kind }: Block) =>
  kind === "sh" || kind.startsWith("sh status=") || kind.endsWith(" output");

/** The file that a page in front of a stack begins with; pages that make their own begin with none. */
const stackFile = `listen: 127.0.0.1:8080
tokens:
${stackTokenEntry}
backends:
  elk: { kind: elastic, url: "http://127.0.0.1:9200" }
  prom: { kind: prometheus, url: "http://127.0.0.1:9090" }
sites:
  shop:
    logs: { backend: elk, sources: { filebeat: { index: "filebeat-*" } } }
    metrics: { backend: prom }
`;

describe("shell examples", () => {
  let demo: Awaited<ReturnType<typeof startDemo>>;
  let shell: ExampleShell | undefined;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo.stop());

  const withShell = pages.filter((page) => page.blocks.some(isOfShell));
  describe.each(withShell.map((page) => [page.path, page] as const))("of %s", (_, page) => {
    const makesItsOwn = page.blocks.some(({ kind, text }) => kind === "sh" && / readout init /.test(text));
    const needsFile = page.blocks.some(
      ({ kind, text }) => kind === "sh" && / readout (?:serve|check|explain)/.test(text),
    );
    let outcome: Outcome | undefined;
    beforeAll(async () => {
      shell = await openExampleShell(demo.address, needsFile && !makesItsOwn ? stackFile : undefined);
    });
    afterAll(async () => {
      await shell?.close();
      outcome = undefined;
    });

    test.each(page.blocks.filter(isOfShell).map((block) => [`line ${block.line}`, block] as const))(
      "%s",
      async (_, { kind, text }) => {
        if (kind === "text output") expect(matchesOutput(text, outcome?.out ?? "")).toBe("");
        else if (kind === "json output")
          expect(matchesShape(text, (outcome?.out ?? "").replace(/^Readout listens on .*\n/, ""))).toBe("");
        else {
          outcome = await shell?.run(text);
          const status = Number(/^sh status=(\d+)$/.exec(kind)?.[1] ?? 200);
          expect(outcome?.err).toBe("");
          expect({ code: outcome?.code, out: outcome?.out }).toMatchObject({ code: 0 });
          expect(outcome?.statuses.filter((got) => got !== status)).toEqual([]);
        }
      },
    );
  });

  test("errors.md names every slug of the OpenAPI document and no other", async () => {
    const document = await (await fetch(`${demo.address}/openapi.json`)).json();
    const slugs = Object.keys(document.components.schemas).flatMap(
      (name) => /^Error_(.*)$/.exec(name)?.[1] ?? [],
    );
    const named = readTable(readPage("docs/reference/api/errors.md"), "Slugs of a 422");
    expect(named.flatMap(([cell = ""]) => listCode(cell)).sort()).toEqual(slugs.sort());
  });

  test.each(each("graphql"))("GraphQL of %s answers on the demo without errors", async (_, { text }) => {
    const answer = await fetch(`${demo.address}/graphql`, {
      method: "POST",
      headers: { authorization: `Bearer ${demoToken}`, "content-type": "application/json" },
      body: JSON.stringify({ query: text }),
    });
    expect(await answer.json()).not.toHaveProperty("errors");
  });
});

// ---- What repeats the code ------------------------------------------------------------------------------------

/** The names of the program's own metrics, without those of node and the process. */
async function listOwnMetrics(): Promise<readonly string[]> {
  const telemetry = createTelemetry({ write: () => {}, level: "silent", process: { memoryLimit: 1 } });
  telemetry.intake.watch(async () => ({ reports: 0, bytes: 0, deadLetters: 0 }));
  const { text } = await telemetry.metrics();
  return [...text.matchAll(/^# TYPE (readout_\w+) /gm)].map(([, name = ""]) => name);
}

describe("what repeats the code", () => {
  test("own-metrics.md names every metric of the program and no other", async () => {
    const rows = readTable(readPage("docs/reference/own-metrics.md"), "Metrics");
    const named = rows.flatMap(([cell = ""]) => listCode(cell)).map((code) => code.replace(/\{.*\}/, ""));
    expect(named.filter((name) => name.startsWith("readout_")).sort()).toEqual(
      [...(await listOwnMetrics())].sort(),
    );
  });

  /** The texts of a union of texts in a file of the program. */
  const listUnion = (file: string, type: string): readonly string[] => {
    const [, union = ""] = new RegExp(`type ${type} =([^;]*);`).exec(readFileSync(file, "utf8")) ?? [];
    if (union === "") throw new Error(`${file} has no type ${type}`);
    return [...union.matchAll(/"(\w+)"/g)].map(([, member = ""]) => member).sort();
  };
  const listFirstCells = (path: string, heading: string): readonly string[] =>
    [...new Set(readTable(readPage(path), heading).flatMap(([cell = ""]) => listCode(cell)))].sort();

  test("limits.md names every limit that is counted and no other", () => {
    expect(listFirstCells("docs/reference/limits.md", "What is counted")).toEqual(
      listUnion("src/core/errors.ts", "LimitName"),
    );
  });

  test("own-metrics.md names every field of a request in the log, and the runbooks no other", () => {
    const lines: string[] = [];
    const telemetry = createTelemetry({ write: (line) => lines.push(line) });
    const request = {
      id: "1",
      operation: "logs.lines",
      method: "POST",
      user: "ana",
      status: 500,
      duration: 1,
      isCut: true,
      hasLeft: true,
      isTail: false,
      sites: ["shop"],
      rows: 1,
      documents: 2,
      missing: ["eu"],
    };
    telemetry.recordFinishedRequest({ ...request, error: new Error("") });
    const { level, time, msg, ...fields } = JSON.parse(lines.join(""));
    const documented = listFirstCells("docs/reference/own-metrics.md", "Fields of a request");
    expect(documented).toEqual(Object.keys(fields).sort());
    const sentences =
      readFileSync("docs/how-to/runbooks.md", "utf8").match(/[^.:]*\b(?:of|Search) the log\b[^.]*\./g) ?? [];
    const named = sentences.flatMap((sentence) => listCode(sentence)).filter((code) => /^[a-z]+$/.test(code));
    expect(named.length).toBeGreaterThan(3);
    expect(named.filter((name) => !documented.includes(name))).toEqual([]);
  });

  test("operate.md names every message of the level error and no other", () => {
    const messages = ["src", "resolvers"].flatMap((folder) =>
      readdirSync(folder, { recursive: true, encoding: "utf8" })
        .filter((file) => file.endsWith(".ts"))
        .flatMap((file) =>
          [
            ...readFileSync(`${folder}/${file}`, "utf8").matchAll(
              /(?:level: "error",\s*message:|"error"[^"]{0,200}\blevel, message:|logger\.error\(\{ \.\.\.fields, err: error \},|messages: \{ unreadable:|(?<=read"), wrong:)\s*"([^"]+)"/g,
            ),
          ].map(([, message = ""]) => message),
        ),
    );
    // What follows the colon is cut on the page.
    const named = listFirstCells("docs/how-to/operate.md", "Errors in the log").map((name) =>
      name.replace(": …", ""),
    );
    const isNamed = (message: string) => named.some((name) => `${message}:`.startsWith(`${name}:`));
    expect(messages.filter((message) => !isNamed(message))).toEqual([]);
    expect(named.filter((name) => !messages.some((message) => `${message}:`.startsWith(`${name}:`)))).toEqual(
      [],
    );
  });

  test("sign-in-to-the-console.md names all that the console says where nobody is signed in", () => {
    const source = readFileSync("src/console/sign-in/sign-in.js", "utf8");
    const said = [...source.matchAll(/["`]((?:\$\{[^}]+\} |[A-Z])[^"`]*?)\.[^"`]*["`]/g)].map(
      ([, sentence = ""]) => sentence.replace(/\$\{[^}]+\}/g, "…"),
    );
    expect(said.length).toBeGreaterThan(4);
    const named = listFirstCells("docs/how-to/sign-in-to-the-console.md", "When it does not work");
    expect(named).toEqual(expect.arrayContaining(said));
  });

  test("frontend-errors.md names every result of a report and no other", () => {
    const results = ["kept", ...listUnion("src/telemetry/intake-telemetry.ts", "DropReason")].sort();
    expect(listFirstCells("docs/reference/api/frontend-errors.md", "Results")).toEqual(results);
  });

  test.each([
    ["log-layouts.md", "logs"],
    ["span-layouts.md", "traces"],
  ])("%s names every built-in layout and no other", (page, folder) => {
    const files = readdirSync(`resolvers/elastic/layout/layouts/${folder}`);
    const names = readTable(readPage(`docs/reference/${page}`), "Layouts")
      .map(([cell = ""]) => listCode(cell)[0] ?? "")
      .filter((name) => !["message", "severity", "hostname", "group"].includes(name));
    expect(names.toSorted()).toEqual(files.map((file) => file.replace(".yaml", "")).sort());
  });

  test("log-layouts.md has every word of a severity, but for those with a number", () => {
    const rows = readTable(readPage("docs/reference/log-layouts.md"), "Severity words");
    const documented = rows.map(([severity = "", words = ""]) => [listCode(severity)[0], listCode(words)]);
    const known = severities.filter((severity) => severity !== "unknown");
    expect(documented).toEqual(
      known.map((severity) => [severity, listSeverityWords(severity).filter((word) => !/\d/.test(word))]),
    );
  });

  const helpBlocks = blocks.filter(({ kind }) => kind.startsWith("text help="));
  test.each(helpBlocks.map((block) => [block.kind.slice("text help=".length), block] as const))(
    "cli.md shows what readout %s --help prints",
    async (command, { text }) => {
      const { usage } = (await commands[command]?.load()) ?? {};
      expect(text).toBe(usage);
    },
  );

  test("test/README.md names files and folders that exist", () => {
    const text = readFileSync(new URL("README.md", import.meta.url), "utf8");
    const paths = [...text.matchAll(/`([a-z][\w.-]*\/[\w./-]*)`/g)].map(([, path = ""]) => path);
    const exists = (path: string) =>
      [path, `../${path}`].some((place) => existsSync(new URL(place, import.meta.url)));
    expect(paths.length).toBeGreaterThan(30);
    expect(paths.filter((path) => !exists(path))).toEqual([]);
  });

  test("cli.md has every command", () => {
    expect(ofKind("text help")[0]?.text).toBe(printUsage());
    expect(helpBlocks.map(({ kind }) => kind.slice("text help=".length))).toEqual(Object.keys(commands));
  });
});

// ---- What is parsed -------------------------------------------------------------------------------------------

describe("configuration examples", () => {
  test.each(each("yaml readout"))("%s is configuration", (_, { text }) => {
    expect(() =>
      parseConfig(JSON.stringify(completeExample(text)), "readout.yaml", exampleWorld),
    ).not.toThrow();
  });

  test.each(each("yaml log-layout"))("%s is a log layout", (_, { text }) => {
    expect(readLogLayout(text).name).toBe(parseYaml(text).name);
  });

  test.each(each("yaml span-layout"))("%s is a span layout", (_, { text }) => {
    expect(readSpanLayout(text).name).toBe(parseYaml(text).name);
  });

  test.each(each("yaml meshrc"))("%s keeps the source of the program's own", (_, { text }) => {
    const own = parseYaml(readFileSync(".meshrc.yaml", "utf8"));
    expect(parseYaml(text).sources.slice(0, 1)).toEqual(own.sources);
    expect(parseYaml(text).sources).toHaveLength(2);
  });

  test.each(each("graphql subgraph"))("%s composes with the program's own", async (_, { text }) => {
    const { errors } = composeServices([
      { name: "readout", typeDefs: parseGraphql(await printSubgraph(schema)) },
      { name: "own", typeDefs: parseGraphql(text) },
    ]);
    expect(errors).toBeUndefined();
  });

  test.each(each("yaml visual"))("%s is the visual that the demo publishes under its id", (_, { text }) => {
    expect(parseYaml(text)).toEqual(parseYaml(readFileSync("src/cli/demo/throughput.yaml", "utf8")));
  });

  test.each(each("yaml elasticsearch-role"))("%s is a role of Elasticsearch", (_, { text }) => {
    for (const { indices } of Object.values<{ indices: object[] }>(parseYaml(text)))
      for (const entry of indices) expect(Object.keys(entry).sort()).toEqual(["names", "privileges"]);
  });

  test.each(each("yaml opensearch-role"))("%s is a role of OpenSearch", (_, { text }) => {
    for (const role of Object.values<Record<string, object[]>>(parseYaml(text))) {
      expect(Object.keys(role).sort()).toEqual(["cluster_permissions", "index_permissions"]);
      for (const entry of role.index_permissions ?? [])
        expect(Object.keys(entry).sort()).toEqual(["allowed_actions", "index_patterns"]);
    }
  });

  test.each([...each("yaml"), ...each("yaml pod"), ...each("yaml scrape")])("%s is YAML", (_, { text }) => {
    expect(parseYaml(text)).toBeTypeOf("object");
  });

  test.each(each("yaml alerts"))("%s alerts on metrics that exist", async (_, { text }) => {
    const { groups } = parseYaml(text) as { groups: { rules: { alert: string; expr: string }[] }[] };
    const metrics = await listOwnMetrics();
    for (const { expr } of groups.flatMap(({ rules }) => rules)) {
      promqlParser.configure({ strict: true }).parse(expr);
      const used = expr.match(/\breadout_\w+/g) ?? [];
      expect(used.filter((name) => !metrics.includes(name.replace(/_(?:bucket|count)$/, "")))).toEqual([]);
    }
  });
});

describe("other examples", () => {
  test.each(
    each("text log-query").flatMap(([at, { text }]) =>
      text
        .trim()
        .split("\n")
        .map((line) => [at, line]),
    ),
  )("%s: %s is a log query", (_, line = "") => {
    expect(() => parseLogQuery(line.replace(/ +# .*$/, ""))).not.toThrow();
  });

  test.each(each("json"))("%s is JSON", (_, { text }) => {
    expect(() => JSON.parse(text)).not.toThrow();
  });

  test.each([...each("js"), ...each("ts")])("%s is code", (_, { text }) => {
    const body = stripTypeScriptTypes(text)
      .replaceAll(/^import .*$/gm, "")
      .replace(/^export default /m, "return ")
      .replaceAll(/^export (?=const )/gm, "");
    expect(() => new Script(`(async () => {\n${body}\n})`)).not.toThrow();
  });

  test("the backend of add-a-backend.md is the one that is tested", () => {
    const [shown] = ofKind("js").filter(({ page }) => page.endsWith("add-a-backend.md"));
    expect(shown?.text).toBe(readFileSync("test/release/own-backend/ndjson-backend.js", "utf8"));
  });

  test.each(each("nginx"))("%s is balanced, and each directive has its end", (_, { text }) => {
    const statements = text
      .replaceAll(/#.*/g, "")
      .split("\n")
      .map((line) => line.trim());
    expect(statements.filter((line) => line !== "" && !/[;{}]$/.test(line))).toEqual([]);
    expect(text.split("{").length).toBe(text.split("}").length);
    expect(text).toContain("proxy_buffering off;");
  });

  test.each(each("dockerfile"))("%s builds on the image", (_, { text }) => {
    expect(text.split("\n")[0]).toBe("FROM readout");
    for (const line of text.trim().split("\n")) expect(line).toMatch(/^(?:FROM|USER|RUN) /);
  });

  test.each(
    each("text trace-query").flatMap(([at, { text }]) =>
      text
        .trim()
        .split("\n")
        .map((line) => [at, line]),
    ),
  )("%s: %s is a query of traces", (_, line = "") => {
    expect(() => parseLogQuery(line)).not.toThrow();
  });
});
