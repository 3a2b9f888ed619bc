// The schema as clients see it. A changed one has to be meant: `npx readout schema > test/graphql/schema.graphql`.
import { readFile } from "node:fs/promises";
import {
  type GraphQLOutputType,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isIntrospectionType,
  isNonNullType,
  isObjectType,
} from "graphql";
import { expect, test } from "vitest";
import * as z from "zod";
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
    if (
      isIntrospectionType(type) ||
      !(isObjectType(type) || isInterfaceType(type) || isInputObjectType(type))
    )
      continue;
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
  expect(String(fields.memory_usage_bytes?.type)).toBe("Float!");
  expect(String(fields.cpu_usage_core_nano_seconds?.type)).toBe("Float!");
  expect(String(fields.pod_restart_count?.type)).toBe("Int!");
});

test("every value of an enumeration says what it means", () => {
  const mute: string[] = [];
  for (const type of Object.values(schema.getTypeMap())) {
    if (isIntrospectionType(type) || !isEnumType(type)) continue;
    for (const value of type.getValues()) if (!value.description) mute.push(`${type.name}.${value.name}`);
  }
  expect(mute).toEqual([]);
});

function findType(typeName: string, field: string): GraphQLOutputType | undefined {
  const type = schema.getType(typeName);
  return isObjectType(type) ? type.getFields()[field]?.type : undefined;
}

test("a field that the answers' schemas never leave out or set to null is non-null, and no other", () => {
  // Worked out from zod itself: what a schema accepts, and not how it is described.
  const wrong: string[] = [];
  const seen = new Set<unknown>();
  const visit = (given: unknown): void => {
    if (!(given instanceof z.ZodType) || seen.has(given)) return;
    seen.add(given);
    if (given instanceof z.ZodArray) visit(given.element);
    if (given instanceof z.ZodNullable || given instanceof z.ZodOptional) visit(given.unwrap());
    if (!(given instanceof z.ZodObject)) return;
    const id = z.globalRegistry.get(given)?.id;
    for (const [key, field] of Object.entries(given.shape)) {
      visit(field);
      const type = id === undefined ? undefined : findType(id, key.replaceAll(".", "_"));
      if (type === undefined) continue;
      const isSet = !field.safeParse(null).success && !field.safeParse(undefined).success;
      if (isNonNullType(type) !== isSet) wrong.push(`${id}.${key}: ${type}`);
    }
  };
  for (const { answer } of operations) visit(answer);
  expect(seen.size).toBeGreaterThan(100);
  expect(wrong).toEqual([]);
});

test.each([
  ["LogLine", "id", "String!"],
  ["ActionEdge", "peer_span_kind", "SpanKind"],
  ["Action", "mean", "Float!"],
  ["Trace", "spans", "[Span!]"],
  ["LogLine", "trace", "Trace"],
  ["Site", "sources", "[String!]!"],
])("%s.%s is %s", (typeName, field, type) => {
  expect(String(findType(typeName, field))).toBe(type);
});

test("a field of Query that can fail is nullable, so that its failure leaves the others their answers", () => {
  const fields = Object.entries(schema.getQueryType()?.getFields() ?? {});
  const nonNull = fields.filter(([, { type }]) => isNonNullType(type)).map(([name]) => name);
  // `_entities` has an error for each of its rows, and is a list in any case.
  const unfailing = ["_entities", "_service", "organization", "sites", "timezones", "viewer"];
  expect(nonNull.sort()).toEqual(unfailing);
});
