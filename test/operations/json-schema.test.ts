// What becomes of schemas whose properties are named as keywords of JSON Schema are.
import { expect, test } from "vitest";
import * as z from "zod";
import { describeSchema } from "#src/operations/runtime/json-schema.ts";

test("properties that are named like keywords are spelt as others are", () => {
  const names = ["name", "type", "examples", "properties", "other"];
  const schema = z.object(Object.fromEntries(names.map((name) => [name, z.string().nullable()])));
  const { properties = {} } = describeSchema(schema, "input", new Map());
  expect(Object.keys(properties)).toEqual(names);
  for (const name of names) expect(properties[name], name).toEqual(properties.other);
  const listed = z.object({ type: z.array(z.string()), description: z.string() });
  expect(describeSchema(listed, "input", new Map()).properties?.type).toMatchObject({ type: "array" });
});
