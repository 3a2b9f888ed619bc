// Runs every regular expression of the program on texts that make backtracking slow: repeated parts of the expression
// with an end that prevents a match. Quadratic time shows at 30,000 characters.
import { readdirSync, readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { normaliseStatement } from "#src/tracing/spans/normalise-statement.js";
import { startProcessorTime } from "../support/cpu-time.ts";
import { long } from "./seeded-generator.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** A literal begins where no value has just ended: there a slash would divide. */
const literal =
  /(?:[(,=>:[!&|?{};]|\breturn|\n)\s*\/(?![*/])((?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+)\/([dgimsuvy]*)/g;

const patterns = ["src", "resolvers"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => /\.[jt]s$/.test(file))
    .flatMap((file) => {
      const code = stripTypeScriptTypes(readFileSync(join(root, folder, file), "utf8")).replace(
        /^\s*(?:\/\/|\*|\/\*).*$/gm,
        "",
      );
      return [...code.matchAll(literal)].map(([, source = "", flags = ""]) => ({
        where: `${folder}/${file}`,
        source,
        flags,
      }));
    }),
);

/** Expressions that never see long untrusted text, with the reason. The long run checks that they are in fact slow. */
const bounded: Readonly<Record<string, string>> = {
  "src/graphql/schema.ts /(?:^|[\\W_]+)(\\w)/g": "names of our own schema",
  "src/graphql/mesh.ts /\\s*\\n[\\s\\S]*$/": "what Mesh says of a schema that it loads",
  "src/telemetry/otlp-request.ts /\\/+$/": "the configuration",
  "src/core/time.ts /0+$/": "at most nine digits: the time has been read before",
  "src/cli/support/open-backend.ts /\\s*\\n\\s*/g": "an error shown on the operator's terminal",
  "src/cli/init/propose.ts /[-._]*\\*[-._]*/g": "names of indices, at most 255 bytes",
  "src/cli/init/propose.ts /^-+|-+$/g": "names of indices, at most 255 bytes",
  "src/cli/token.ts /\\.?0+Z$/": "a time that we have printed",
  "resolvers/elastic/query/comparison-compiler.ts /[A-Za-z0-9]+$/": "the last hundred characters of a word",
  "resolvers/elastic/client/query-dsl.ts /<[^>]*>/g": "the configuration",
  "resolvers/elastic/client/transports.ts /\\/+$/": "the configuration",
  "resolvers/prometheus/client/transport.ts /\\/+$/": "the configuration",
};

// A square of these takes a hundred times what is allowed, a multiple next to nothing.
const length = long ? 30_000 : 6_000;
const most = long ? 100 : 10;

/** Characters and pieces of the pattern's own, and one of each class that it may mean. */
function pumps(source: string): readonly string[] {
  const pieces = source
    .replace(/\\[dDwWsSbB]|\\p\{\w+\}|[()[\]{}|^$?*+]|\\/g, " ")
    .split(/ +/)
    .filter((piece) => piece !== "" && piece.length < 30);
  const letters = ["a", "0", " ", "\n", ".", "-", ...pieces.join("").slice(0, long ? 40 : 10)];
  return [...new Set([...letters, ...pieces, ...pieces.flatMap((piece) => [`${piece} `, `${piece}0`])])];
}

/** The piece that makes it slow. Measured twice, since anything may come between once. */
function slowOn(pattern: RegExp, source: string): string | undefined {
  const takesLong = (text: string) => {
    pattern.lastIndex = 0;
    const used = startProcessorTime();
    pattern.test(text);
    return used() > most;
  };
  return pumps(source).find((pump) => {
    const body = pump.repeat(Math.ceil(length / pump.length));
    const texts = [`${body}\0`, ...(long ? [body, `${body}!`, `a${body}!`, `"${body}\0`] : [])];
    return texts.some((text) => takesLong(text) && takesLong(text));
  });
}

test("every regular expression runs in linear time", () => {
  expect(patterns.length).toBeGreaterThan(100);
  const astray = patterns.flatMap(({ where, source, flags }) => {
    const name = `${where} /${source}/${flags}`;
    const slow = slowOn(new RegExp(source, flags), source);
    const excused = Object.hasOwn(bounded, name);
    if (excused) return long && slow === undefined ? [`${name} is not slow`] : [];
    return slow === undefined ? [] : [`${name} on ${JSON.stringify(slow)}`];
  });
  expect(astray).toEqual([]);
  const found = patterns.map(({ where, source, flags }) => `${where} /${source}/${flags}`);
  expect(Object.keys(bounded).filter((name) => !found.includes(name))).toEqual([]);
});

test("SQL statements are masked in linear time", () => {
  const pieces = [
    "'",
    '"',
    "`",
    "/*",
    "--",
    "-- \n",
    ":",
    "%(",
    "%(a",
    "1e",
    "1.",
    "0x",
    "( ?,",
    "(1),",
    "[1],",
    "{",
    "'\\",
    "''",
    "é",
    "\ud800",
    "$1",
    " ",
  ];
  for (const piece of pieces) {
    const used = startProcessorTime();
    normaliseStatement(piece.repeat(200_000 / piece.length));
    expect(used(), piece).toBeLessThan(1_000);
  }
});
