// The schema as clients see it. A changed one has to be meant: `npx readout schema > test/graphql/schema.graphql`.
import { readFile } from "node:fs/promises";
import { isInputObjectType, isIntrospectionType, isObjectType } from "graphql";
import { expect, test } from "vitest";
import { run } from "#src/cli/schema.ts";
import { schema } from "#src/graphql/schema.ts";
import { operations } from "#src/operations/index.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

const now = toInstant("2026-01-15T12:00:00Z");

test("`readout schema` prints the schema that is kept beside this test", async () => {
  const shell = createShell({ now });
  expect(await run([], shell)).toBe(0);
  expect(shell.printed()).toBe(await readFile(new URL("schema.graphql", import.meta.url), "utf8"));
  expect(await run(["--nope"], createShell({ now }))).toBe(2);
});

test("every operation is a field, with its own words", () => {
  const fields = schema.getQueryType()?.getFields() ?? {};
  for (const { name, summary, path } of operations) {
    const field = fields[name.replaceAll(".", "_")];
    expect(field?.description, name).toContain(summary);
    expect(field?.description, name).toContain(path);
  }
});

test("every field and argument says what it is", () => {
  const mute: string[] = [];
  for (const type of Object.values(schema.getTypeMap())) {
    if (isIntrospectionType(type) || !(isObjectType(type) || isInputObjectType(type))) continue;
    if (!type.description) mute.push(type.name);
    for (const field of Object.values(type.getFields())) {
      if (!field.description) mute.push(`${type.name}.${field.name}`);
      for (const arg of "args" in field ? field.args : []) {
        if (!arg.description) mute.push(`${type.name}.${field.name}(${arg.name})`);
      }
    }
  }
  expect(mute).toEqual([]);
});

test("nothing that is said ends a comment, which generators of clients make of it", async () => {
  expect(await readFile(new URL("schema.graphql", import.meta.url), "utf8")).not.toContain("*/");
});

test("whole numbers that may pass 32 bits are no Int", () => {
  const type = schema.getType("PodsRow");
  const fields = isObjectType(type) ? type.getFields() : {};
  expect(String(fields.memory_usage_bytes?.type)).toBe("Float");
  expect(String(fields.cpu_usage_core_nano_seconds?.type)).toBe("Float");
  expect(String(fields.pod_restart_count?.type)).toBe("Int");
});
