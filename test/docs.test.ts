// What the guides show is copied, so it has to be what the program reads: examples of files, in both guides.
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { parseSpanLayout } from "#resolvers/elastic/layout/span-layout.ts";
import { kinds } from "#resolvers/index.ts";
import { parseConfig } from "#src/config/config.ts";

const readme = readFileSync("README.md", "utf8");

/** Indented blocks without their indentation. */
function blocksOf(guide: string): readonly string[] {
  return [...guide.matchAll(/(?<=\n\n)(?: {4,}.*\n|\n(?= {4}))+/g)].map(([block]) => {
    const lines = block.split("\n");
    const depth = Math.min(...lines.filter((line) => line !== "").map((line) => line.search(/\S/)));
    return lines.map((line) => line.slice(depth)).join("\n");
  });
}

describe("the README's examples", () => {
  const world = {
    kinds,
    env: { ES_API_KEY: "k", MIMIR_TOKEN: "t", FRONTEND_KEY: "f" },
    readText: () => "a secret",
  };
  // What an example leaves to others is filled in.
  const rest = {
    backends: {
      elk: { kind: "elastic", url: "http://e" },
      prom: { kind: "prometheus", url: "http://p" },
    },
    sites: { shop: {} },
  };
  const configurations = blocksOf(readme).filter((block) =>
    /^(listen|backends|sites|intake|otlp):(?! *\n *- )/.test(block),
  );

  test("there are examples of the configuration", () => {
    expect(configurations.length).toBeGreaterThanOrEqual(4);
  });

  test.each(configurations.map((block) => [block.slice(0, 60), block]))("%s is configuration", (_, block) => {
    const { tokens, ...shown } = parse(block);
    const text = JSON.stringify({ ...rest, ...shown, backends: { ...rest.backends, ...shown.backends } });
    expect(() => parseConfig(text, "readout.yaml", world)).not.toThrow();
    if (tokens !== undefined) expect(tokens).toEqual([{ user: "ana", sha256: "…", sites: ["shop"] }]);
  });

  test("a .meshrc.yaml with a second source keeps the source of the program's own", () => {
    const [shown = ""] = blocksOf(readme).filter((block) => block.includes("additionalTypeDefs"));
    const own = parse(readFileSync(".meshrc.yaml", "utf8"));
    expect(parse(shown).sources.slice(0, 1)).toEqual(own.sources);
    expect(parse(shown).sources).toHaveLength(2);
  });

  test("the visual is the one that the demo publishes under its id", () => {
    const [shown = ""] = blocksOf(readme).filter((block) => block.startsWith("id: "));
    const published = parse(readFileSync("src/cli/demo/throughput.yaml", "utf8"));
    expect(parse(shown.split("\n\n")[0] ?? "")).toEqual(published);
  });
});

test("the span layout that resolvers/README.md shows is one", () => {
  const guide = readFileSync("resolvers/README.md", "utf8");
  const [shown = ""] = blocksOf(guide).filter((block) => block.includes("\ntraces:\n"));
  expect(parseSpanLayout(shown).name).toBe("mine");
});
