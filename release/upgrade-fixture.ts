// What later versions are tested to read of this one, in `test/upgrade/VERSION/`: the configurations that its reference shows,
// which have every key, and a spool with the tables that it makes.
import { globSync, readFileSync } from "node:fs";
import { parse, stringify } from "yaml";
import { openSpoolFile } from "#src/intake/spool-file.ts";

/** A configuration of the reference, which may leave parts to others. */
interface Example {
  readonly backends?: object;
  readonly tokens?: readonly object[];
}

/** What an example leaves to others. */
const rest = {
  backends: {
    elk: { kind: "elastic", url: "http://127.0.0.1:9200" },
    prom: { kind: "prometheus", url: "http://127.0.0.1:9090" },
  },
  sites: { shop: {} },
};

/** Fills in what an example leaves to others. Tokens of one example get hashes of their own. */
export function completeExample(text: string): object {
  const shown = parse(text) as Example;
  const tokens = shown.tokens?.map((token, at) => ({ ...token, sha256: `${at}`.padStart(64, "a") }));
  return { ...rest, ...shown, ...(tokens && { tokens }), backends: { ...rest.backends, ...shown.backends } };
}

/**
 * Lists the files of the version, by name. The reports are those of an earlier version's spool.
 * @throws {Error} where they do not fit the tables of this version: write `spool.sql` by hand then
 */
export function listUpgradeFixture(
  version: string,
  earlierSpool: string,
): readonly (readonly [string, string])[] {
  const pages = globSync("docs/reference/*.md").toSorted();
  const examples = pages.flatMap((page) =>
    [...readFileSync(page, "utf8").matchAll(/^```yaml readout\n([\s\S]*?)^```$/gm)].map(([, text = ""]) =>
      stringify(completeExample(text)),
    ),
  );
  const words = "Never change this file: later versions have to read it.";
  return [
    [
      "examples.yaml",
      `# What the reference of version ${version} shows. ${words}\n${examples.join("---\n")}`,
    ],
    ["spool.sql", `-- A spool of version ${version}. ${words}\n${printSpool(earlierSpool)}`],
  ];
}

function printSpool(earlierSpool: string): string {
  const rows = earlierSpool.slice(earlierSpool.indexOf("INSERT INTO"));
  const database = openSpoolFile(":memory:");
  database.exec(rows);
  const format = database.prepare("PRAGMA user_version").get()?.user_version;
  const tables = database.prepare("SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'").all();
  database.close();
  return [`PRAGMA user_version = ${format};`, ...tables.map(({ sql }) => `${sql};`), rows].join("\n");
}
