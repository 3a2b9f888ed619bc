// What existing clients ask: each of their documents is valid here if it is valid against the schema that they know, and the
// demo answers it without an error.
import { findBreakingChanges, parse, validate } from "graphql";
import { afterAll, describe, expect, test } from "vitest";
import { schema } from "#src/graphql/schema.ts";
import { createDemo } from "../../support/demo-server.ts";
import { documents, unanswered } from "./documents.ts";
import { buildKnownSchema, renameTypes } from "./known-schema.ts";

const known = buildKnownSchema();
const ours = renameTypes(schema);
const demo = await createDemo();
afterAll(() => demo.close());

test("nothing that existing clients know is missing or another thing", () => {
  expect(Object.keys(known.getTypeMap()).length).toBeGreaterThan(100);
  expect(findBreakingChanges(known, ours).map(({ description }) => description)).toEqual([]);
});

describe.each(documents)("$client: $name", ({ query, variables }) => {
  test("is valid against both schemas", () => {
    expect(validate(known, parse(query))).toEqual([]);
    expect(validate(schema, parse(query))).toEqual([]);
  });

  test("is answered", async () => {
    const { data, errors } = await demo.graphql(query, variables);
    expect(errors).toBeUndefined();
    expect(data).toBeTruthy();
  });
});

test("what cannot be answered has a reason", () => {
  for (const [call, reason] of Object.entries(unanswered)) expect(reason.length, call).toBeGreaterThan(20);
});
