// What earlier versions wrote is read by this one: configurations and spools, kept as they were, a folder for each version, which
// `npm version` makes.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parseConfig } from "#src/config/config.ts";
import { openSpool } from "#src/intake/spool.ts";
import manifest from "../../package.json" with { type: "json" };
import { exampleWorld } from "../support/docs/example-world.ts";
import { readPage, readTable } from "../support/docs/pages.ts";

const folder = fileURLToPath(new URL(".", import.meta.url));
const versions = readdirSync(folder).filter((name) => /^\d/.test(name));
const read = (version: string, file: string) => readFileSync(join(folder, version, file), "utf8");
const load = (text: string) => parseConfig(text, "readout.yaml", exampleWorld);

test("there is a folder for each version that was released, this one included", () => {
  const released = [...readFileSync("CHANGELOG.md", "utf8").matchAll(/^## \[?(\d[\w.-]*)/gm)].map(
    ([, version]) => version,
  );
  expect(versions.toSorted()).toEqual(released.toSorted());
  expect(versions).toContain(manifest.version);
});

describe.each(versions)("version %s", (version) => {
  const configurations = readdirSync(join(folder, version))
    .filter((name) => name.endsWith(".yaml"))
    .flatMap((file) =>
      read(version, file)
        .split(/^---$/m)
        .map((text, at) => [file, at, text] as const),
    );
  test.each(configurations)("%s, %i, is served", (_, _at, text) => {
    expect(() => load(text)).not.toThrow();
  });

  test("its spool keeps the reports that wait, their order and their ids", () => {
    const place = mkdtempSync(join(tmpdir(), "readout-upgrade-"));
    const path = join(place, "spool.db");
    const written = new DatabaseSync(path);
    written.exec(`PRAGMA journal_mode = WAL; ${read(version, "spool.sql")}`);
    written.close();
    const spool = openSpool(path, 1_000_000);
    expect(spool.readLevel()).toMatchObject({ reports: 2, deadLetters: 1, sites: { shop: 1, blog: 1 } });
    expect(spool.readOldest("shop", 10, 1_000_000)).toEqual([
      {
        sequence: 1,
        id: "035257c9c15d0f064e7d8c21b478ba2d",
        index: "logs-readout.frontend-default",
        body: '{"trace_id":"a"}',
      },
    ]);
    spool.append([{ site: "shop", index: "i", received: 1, body: "{}" }]);
    expect(spool.readOldest("shop", 10, 1_000_000).map(({ sequence }) => sequence)).toEqual([1, 4]);
    spool.close();
    rmSync(place, { recursive: true });
  });
});

test("keys of 0.1.0 mean what they meant", () => {
  const { sites, limits } = load(read("0.1.0", "full.yaml"));
  expect(sites.shop?.logs?.sources.nginx?.layout).toBe("ecs");
  expect([sites.shop?.traces].flat().map((part) => part?.layout)).toEqual(["otel"]);
  expect(sites.shop?.frontend?.layout).toBe("otel");
  expect(limits.linesPerMillisecond).toBe(20_000);
  expect(limits.tail.maxOpen).toBe(10);
});

test("the page of versions names each older key", () => {
  const rows = readTable(readPage("docs/reference/versions.md"), "Older keys");
  const source = readFileSync("src/config/older-keys.ts", "utf8");
  const older = [...source.matchAll(/older: "(\w+)", key: "(\w+)"/g)].map(
    ([, older, key]) => `${older} ${key}`,
  );
  const named = rows.map(([older = "", key = ""]) => `${lastPart(older)} ${lastPart(key)}`);
  expect([...new Set(named)].toSorted()).toEqual([...new Set(older)].toSorted());
});

const lastPart = (cell: string): string => cell.replaceAll("`", "").split(".").at(-1)?.trim() ?? "";
