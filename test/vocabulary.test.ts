// The words and sizes of the code: functions begin with a verb, exported names use the field's terms, a file's name means
// one thing, and folders, files and functions stay small enough to read.
import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const verbs = new Set(
  readFileSync(new URL("verbs.txt", import.meta.url), "utf8")
    .split(/\s+/)
    .filter(Boolean),
);

/** Words of an earlier private vocabulary. Each has a plain term of the field in its place. */
const bannedWords = new Set(
  "told tell asked given wanted sure lean alike whole bare lost comes said heaps door wall mend profile profiles".split(
    " ",
  ),
);

/**
 * Base names that stand in several folders, with the one role that all of them have. Any other base name stands once.
 */
const sharedNames: Readonly<Record<string, string>> = {
  "analytics.ts": "figures over spans: their meaning in tracing, their routes in operations",
  "client.ts": "how a backend kind speaks to its servers",
  "discovery.ts": "what `readout init` finds on a server",
  "error-reports.ts": "writing front-end error reports: the contract, and a backend's store",
  "explain.ts": "what a request means and what it asks of the sources",
  "index.ts": "the list of all that a folder offers",
  "inspection.ts": "what `readout check` reports of a source",
  "kubernetes-store.ts": "a backend's Kubernetes store",
  "kubernetes.ts": "the Kubernetes part: its contract, and its routes",
  "log-store.ts": "a backend's log store",
  "logs.ts": "log lines: their contract, the demo's, and the console's view",
  "metric-store.ts": "a backend's metric store",
  "metrics.ts": "metrics, of one folder's subject",
  "n-plus-one.ts": "which requests repeat a query: what it means in tracing, how an index finds candidates",
  "openapi.ts": "the OpenAPI description of a group of routes",
  "request.ts": "what a request is, at one layer",
  "rollup-store.ts": "a backend's store of rollups",
  "rollups.ts": "kept figures of pieces of time: the contract of their store, and how they answer",
  "schema.ts": "the schemas of a group of routes",
  "search-plan.ts": "what a source is searched by for one request, of lines or of spans",
  "span-store.ts": "a backend's span store",
};

interface FunctionText {
  readonly file: string;
  readonly name: string;
  readonly text: string;
  /** The comment lines straight above it. */
  readonly comment: string;
  readonly isDeclaration: boolean;
}

const files = ["src", "resolvers"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => /(?<!\.d)\.(ts|js)$/.test(file))
    .map((file) => `${folder}/${file}`),
);
const texts = new Map(files.map((file) => [file, readFileSync(join(root, file), "utf8")]));
const functions = files.flatMap((file) => findFunctions(file, texts.get(file) ?? ""));

/** Top-level functions; the formatter puts the end of each at the beginning of a line. */
function findFunctions(file: string, text: string): readonly FunctionText[] {
  const start =
    /^(?:export )?(?:default )?(?:(?:async )?function\*? ?(\w+)|const (\w+)[^=\n]*= (?:async )?(?:<|\(|function|\w+ =>))/gm;
  return [...text.matchAll(start)].flatMap((match) => {
    const [, declared, assigned] = match;
    const rest = text.slice(match.index);
    const body = /^[\s\S]*?(?:^\}.*$|;$)/m.exec(rest)?.[0] ?? rest;
    const isBlock = declared !== undefined || /\{\s*$/m.test(body.split("\n", 1).join());
    const whole = isBlock ? (/^[\s\S]*?^\}[);,\s]*$/m.exec(rest)?.[0] ?? rest) : body;
    const comment = /(?:^(?:\/\/|\/\*\*| \*).*\n)*$/m.exec(text.slice(0, match.index))?.[0] ?? "";
    const name = declared ?? assigned ?? "";
    return [{ file, name, text: whole, comment, isDeclaration: declared !== undefined }];
  });
}

function splitWords(name: string): readonly string[] {
  return name
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replaceAll(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .toLowerCase()
    .split(/[\s_]+/);
}

describe("names", () => {
  test("nine of ten function declarations begin with a verb", () => {
    const declared = functions.filter(({ isDeclaration }) => isDeclaration);
    const others = declared.filter(({ name }) => !verbs.has(splitWords(name)[0] ?? ""));
    expect(declared.length).toBeGreaterThan(1_000);
    const share = 1 - others.length / declared.length;
    expect(share, others.map(({ file, name }) => `${file}: ${name}`).join("\n")).toBeGreaterThanOrEqual(0.9);
  });

  test("predicates return booleans", () => {
    const wrong = functions.filter(({ name, text, isDeclaration }) => {
      if (!isDeclaration || !/^(is|has|can|may)[A-Z]/.test(name)) return false;
      const head = /^[\s\S]*?\{$/m.exec(text)?.[0] ?? "";
      return !/: (?:Promise<boolean>|boolean|(?:asserts )?\w+ is [\s\S]*) \{$/.test(head);
    });
    const typed = wrong.filter(({ file }) => file.endsWith(".ts"));
    expect(typed.map(({ file, name }) => `${file}: ${name}`)).toEqual([]);
  });

  test("exported names have none of the banned words", () => {
    const exported = [...texts].flatMap(([file, text]) =>
      [...text.matchAll(/^export (?:async )?(?:function\*?|const|let|class|interface|type) (\w+)/gm)].map(
        ([, name = ""]) => ({ file, name }),
      ),
    );
    const found = exported.filter(({ name }) => splitWords(name).some((word) => bannedWords.has(word)));
    expect(exported.length).toBeGreaterThan(500);
    expect(found.map(({ file, name }) => `${file}: ${name}`)).toEqual([]);
  });

  test("a file's base name stands once, or for one role", () => {
    const byName = Map.groupBy(files, (file) => basename(file));
    const repeated = [...byName].filter(([, places]) => places.length > 1).map(([name]) => name);
    expect(repeated.sort()).toEqual(Object.keys(sharedNames).sort());
  });

  test("file names are words in lower case, joined by hyphens", () => {
    expect(files.filter((file) => !/^[a-z0-9]+(?:-[a-z0-9]+)*\.(?:ts|js)$/.test(basename(file)))).toEqual([]);
  });
});

describe("sizes", () => {
  test("no file or function is short because a literal is packed into spreads", () => {
    const packed = [...texts].filter(([, text]) => /\.\.\.(?:\{|\[[^[\]]*\](?![.:]))/.test(text));
    expect(packed.map(([file]) => file)).toEqual([]);
  });

  test("no folder has more than 15 modules", () => {
    const byFolder = Map.groupBy(files, (file) => dirname(file));
    const large = [...byFolder].filter(([, own]) => own.length > 15);
    expect(large.map(([folder, own]) => `${folder}: ${own.length}`)).toEqual([]);
  });

  test("no file has more than 500 lines", () => {
    const long = [...texts].map(([file, text]) => ({ file, lines: text.split("\n").length - 1 }));
    expect(long.filter(({ lines }) => lines > 500)).toEqual([]);
    // A browser reads a whole module for whatever it needs of it.
    const modules = long.filter(({ file }) => file.startsWith("src/console/"));
    expect(modules.length).toBeGreaterThan(60);
    expect(modules.filter(({ lines }) => lines > 300)).toEqual([]);
  });

  // A comment `Long: …` straight above a function says why it stays in one piece.
  test("no function has more than 80 lines without a reason beside it", () => {
    const long = functions.filter(({ text }) => text.split("\n").length > 80);
    const unexplained = long.filter(({ comment }) => !/Long: \S+ \S+/.test(comment));
    expect(unexplained.map(({ file, name }) => `${file}: ${name}`)).toEqual([]);
  });
});
