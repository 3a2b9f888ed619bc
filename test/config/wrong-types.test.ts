// Every key of a configuration and of a layout file with a value of each other type: what is said of it is in our own words.
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import { z } from "zod";
import { parseLogLayout } from "../../resolvers/elastic/layout/log-layout.ts";
import { parseSpanLayout } from "../../resolvers/elastic/layout/span-layout.ts";
import { kinds } from "../../resolvers/index.ts";
import { explainIssue, reportIssue } from "../../src/config/validation.ts";
import { readUserPages } from "../support/docs/pages.ts";
import { listIssues } from "./fixture.ts";

const wrong = [5, "x y", [], ["x y"], [[]], { a: 1 }, true, null];

/**
 * Copies of a value, each with a wrong one in one place. Of equal places, such as the entries of a list, only the first gets one.
 * A list has no other entries then, so that little is parsed.
 */
function* replaceEach(value: unknown, place: string, seen: Set<string>): Generator<unknown> {
  if (!seen.has(place)) yield* wrong;
  seen.add(place);
  if (typeof value !== "object" || value === null) return;
  const areNamed = ["/backends", "/sites"].includes(place) || Array.isArray(value);
  for (const [key, child] of Object.entries(value)) {
    for (const changed of replaceEach(child, `${place}/${areNamed ? "" : key}`, seen)) {
      yield Array.isArray(value) ? [changed] : { ...value, [key]: changed };
    }
  }
}

const isOfLibrary = (issue: string) => /: (?:Invalid|Too|Unrecognized|Expected|Unknown)\b/.test(issue);

test("no wrong value of a configuration is met by words of the library", () => {
  // The reference has an example of every key (documented-keys.test.ts).
  const examples = readUserPages()
    .filter(({ path }) => path.startsWith("docs/reference/"))
    .flatMap(({ blocks }) => blocks.filter(({ kind }) => kind === "yaml readout"))
    .map(({ text }): unknown => parseYaml(text));
  const seen = new Set<string>();
  const found = examples
    .flatMap((example) => Object.entries(example ?? {}))
    .flatMap(([key, value]) =>
      [...replaceEach(value, `/${key}`, seen)].map((changed) => ({ [key]: changed })),
    )
    .flatMap((file) => listIssues(JSON.stringify(file), { kinds }));
  expect(found.length).toBeGreaterThan(1_000);
  expect(found.filter(isOfLibrary)).toEqual([]);
});

test.each([
  ["logs", parseLogLayout],
  ["traces", parseSpanLayout],
])("no wrong value of a layout of %s is met by words of the library", (part, parseLayout) => {
  const folder = `resolvers/elastic/layout/layouts/${part}/`;
  const seen = new Set<string>();
  const found = readdirSync(folder)
    .map((name): unknown => parseYaml(readFileSync(folder + name, "utf8")))
    .flatMap((layout) => [...replaceEach(layout, "", seen)])
    .flatMap((layout) => listLayoutIssues(() => parseLayout(JSON.stringify(layout), explainIssue)));
  expect(found.length).toBeGreaterThan(100);
  expect(found.filter(isOfLibrary)).toEqual([]);
});

function listLayoutIssues(parseLayout: () => unknown): readonly string[] {
  const found: string[] = [];
  try {
    parseLayout();
  } catch (error) {
    if (!(error instanceof z.ZodError)) throw error;
    for (const issue of error.issues)
      reportIssue(issue, [], (path, message) => found.push(`${path.join(".")}: ${message}`));
  }
  return found;
}
