// The fields that a query looks at, by which requests are refused to users for whom they are masked: none may be missed.
import { expect, test } from "vitest";
import {
  allOf,
  anyOf,
  buildIgnoredQuery,
  listQueriedNames,
  matchAll,
  not,
} from "#resolvers/elastic/client/query-dsl.ts";

test("names stand at their places in the clauses, and values are none", () => {
  const query = allOf([
    anyOf([
      { term: { service: "user" } },
      { terms: { host: ["a", "b"] } },
      { term: { zone: { value: "c", case_insensitive: true } } },
    ]),
    not({ nested: { path: "links", query: { exists: { field: "links.id" } } } }),
    { range: { time: { gte: "d", format: "e" } } },
    { match: { message: { query: "f", operator: "and" } } },
    { wildcard: { url: { value: "g*" } } },
    { regexp: { level: { value: "h" } } },
  ]);
  const names = ["service", "host", "zone", "links", "links.id", "time", "message", "url", "level"];
  expect(listQueriedNames(query)).toEqual(names);
  expect(listQueriedNames(matchAll)).toEqual([]);
});

test("the names that a document lists in _ignored are names of fields", () => {
  expect(listQueriedNames(buildIgnoredQuery("user"))).toEqual(["_ignored", "user"]);
  expect(listQueriedNames({ terms: { _ignored: ["host", "host.name"] } })).toEqual([
    "_ignored",
    "host",
    "host.name",
  ]);
});

test.each([
  { query_string: { query: "x", default_field: "user" } },
  { bool: { filter: { constant_score: { filter: { prefix: { user: "x" } } } } } },
  { multi_match: { query: "x", fields: ["user"] } },
  { bool: { must: [["user"]] } },
  { exists: { name: "user" } },
  { term: "user" },
])("a part of no known clause may name anything: %j", (query) => {
  expect(listQueriedNames(query)).toContain("user");
});
