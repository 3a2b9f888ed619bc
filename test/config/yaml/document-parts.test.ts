// A file is read in parts: no answer may show where one part ended and the next began.
import fc from "fast-check";
import { expect, test } from "vitest";
import { parseDocument } from "yaml";
import { type InterpolationContext, readYamlTree, type YamlTree } from "#src/config/yaml/yaml.ts";
import { runSteps } from "#src/core/async/turns.ts";
import { ConfigError } from "#src/core/errors.ts";

const context: InterpolationContext = { env: { SECRET: "hunter2!" }, readText: () => "" };

function read(text: string): YamlTree {
  return runSteps(readYamlTree(text, "f", context));
}

function countSteps(text: string): number {
  const steps = readYamlTree(text, "f", context);
  let count = 0;
  while (!steps.next().done) count += 1;
  return count;
}

function listIssues(text: string): readonly string[] {
  try {
    return read(text).issues.map(({ path, message, line }) => `${line} ${path.join(".")}: ${message}`);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.issues.map(({ path, message, line }) => `${line} ${path}: ${message}`);
  }
}

/** Values of a site, also in forms that few people write. */
const values = fc.oneof(
  fc.constantFrom("{ a: 1, b: [x, y] }", "[1, 2,\n    3]", "text", '"quoted: \\"text\\""', "'it''s'", ""),
  fc.constantFrom("|\n    two\n\n    lines", ">-\n    folded\n    text", "two\n    plain lines"),
  fc.constantFrom("\n    a: 1\n    b:\n      - x\n      - y: 2", "\n  - at the indent\n  - of its key"),
  fc.constantFrom(
    "\n    # comment\n    a: 1 # another\n",
    "\n\n    a: 1\n   # less far in\n",
    "12",
    "true",
    "~",
  ),
);

/** Lines between two entries. */
const gaps = fc.constantFrom(
  "",
  "",
  "",
  "\n",
  "  # of the next\n",
  "# at the margin\n",
  "    # far in\n\n",
  " \n",
);

const entries = fc.array(fc.tuple(gaps, values), { minLength: 90, maxLength: 420, size: "max" });

const heads = fc.constantFrom(
  "",
  "# a comment\n\n",
  "---\n",
  "first: { a: [1, 2] }\nsecond: text\n",
  "list:\n- 1\n- 2\n",
);
const tails = fc.constantFrom("", "# the end\n", "last: 1\n", "last:\n  a: b\n", "...\n");

test("a map of many entries is read as the library reads the whole file", () => {
  fc.assert(
    fc.property(heads, entries, tails, (head, all, tail) => {
      const body = all.map(([gap, value], n) => `${gap}  site-${n}: ${value}\n`).join("");
      const text = `${head}sites:\n${body}${tail}`;
      const whole = parseDocument(text, { uniqueKeys: false });
      fc.pre(whole.errors.length === 0);
      expect(read(text).value).toEqual(whole.toJS());
      if (all.length > 250) expect(countSteps(text)).toBeGreaterThan(2);
    }),
  );
});

test("so is a list of many items", () => {
  fc.assert(
    fc.property(heads, entries, tails, (head, all, tail) => {
      const body = all.map(([gap, value]) => `${gap}  - ${value.replaceAll("\n", "\n  ")}\n`).join("");
      const text = `${head}tokens:\n${body}sites: { a: b }\n${tail}`;
      const whole = parseDocument(text, { uniqueKeys: false });
      fc.pre(whole.errors.length === 0);
      expect(read(text).value).toEqual(whole.toJS());
    }),
  );
});

const many = (count: number, from = 0) =>
  Array.from({ length: count }, (_, n) => `  s${from + n}: { a: ${n} }\n`).join("");

test("takes a step for each hundred entries or so", () => {
  expect(countSteps(`sites:\n${many(1_000)}`)).toBeGreaterThanOrEqual(9);
  expect(countSteps(`sites: {\n${many(3).replaceAll("\n", ",\n")}}\n`)).toBe(1);
});

test("an alias stands for what its anchor had before it, in whatever part", () => {
  const { value, issues } = read(
    `x: &x 1\ny: &y { v: *x }\nsites:\n  a: &x 2\n${many(300)}  b: *x\n  c: *y\n  d: &x 3\n${many(300, 300)}  e: *x\nz: *x\n`,
  );
  expect(issues).toEqual([]);
  expect(value).toMatchObject({ sites: { b: 2, c: { v: 1 }, e: 3 }, z: 3 });
});

test("an anchor of all entries is kept", () => {
  const { value } = read(`sites: &all\n${many(300)}copy: *all\n`);
  const { sites, copy } = value as { sites: object; copy: object };
  expect(Object.keys(copy)).toHaveLength(300);
  expect(copy).toEqual(sites);
});

test("directives count in each part", () => {
  const { value } = read(`%YAML 1.1\n---\nsites:\n  a: yes\n${many(300)}  b: yes\n`);
  expect(value).toMatchObject({ sites: { a: true, b: true } });
});

test.each([
  ["a key of an earlier part", `sites:\n${many(300)}  s7: 1\n`, ["302 sites.s7: duplicate key"]],
  [
    "a key of the root, of which only the first counts",
    `sites:\n${many(300)}other: 1\nsites:\n${many(300, 200)}`,
    ["303 sites: duplicate key"],
  ],
  [
    "a key that is not allowed",
    `__proto__:\n${many(300)}sites: {}\n`,
    ["1 __proto__: this key is not allowed"],
  ],
  ["a merge key", `<<:\n${many(300)}sites: {}\n`, ["1 <<: merge keys are not supported: write the keys out"]],
  [
    "an alias without an anchor",
    `sites:\n${many(250)}  x: *nothing\n${many(250, 250)}`,
    ["252 sites.x: an alias (*name) needs an anchor (&name) before it; text that begins with * needs quotes"],
  ],
  [
    "a wrong indentation",
    `sites:\n${many(250)}   x: 1\n${many(250, 250)}`,
    [expect.stringMatching(/^25[12] : wrong indentation/)],
  ],
  [
    "a second document",
    `sites:\n${many(250)}---\nsites:\n${many(250)}`,
    [expect.stringMatching(/^\d+ : more than one document/)],
  ],
])("reports the line of %s", (_, text, issues) => {
  expect(listIssues(text)).toEqual(issues);
});

test("finds the line of each value", () => {
  const lines = runSteps(read(`a: 1\nsites:\n${many(300)}b: 2\n`).findLines());
  expect(
    ["a", "sites", "sites\0s0", "sites\0s299", "sites\0s299\0a", "b"].map((key) => lines.get(key)),
  ).toEqual([1, 2, 3, 302, 302, 303]);
});

test("substitutes in each part, and remembers where", () => {
  const { value, templates, secrets } = read(`sites:\n${many(300)}  x: "\${SECRET}"\n${many(9, 300)}`);
  expect(value).toMatchObject({ sites: { x: "hunter2!" } });
  expect([...templates]).toEqual([["sites\0x", `\${SECRET}`]]);
  expect([...secrets]).toEqual(["hunter2!"]);
});
