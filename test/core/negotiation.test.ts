// What clients take, by their headers.
import { expect, test } from "vitest";
import {
  chooseCoding,
  chooseGraphqlType,
  chooseRepresentation,
  isMediaTypeAccepted,
  isMediaTypeNamed,
} from "#src/core/negotiation.ts";

// RFC 9110, section 12.5.3.
test.each<[accept: string, name: "gzip" | "zstd" | undefined, isPlainRefused: boolean]>([
  ["gzip, deflate, br, zstd", "zstd", false],
  ["gzip, deflate", "gzip", false],
  ["GZip;q=0.5", "gzip", false],
  ["x-gzip", "gzip", false],
  ["gzip;q=1.0, zstd;q=0.9", "gzip", false],
  ["*", "gzip", false],
  ["*;q=0.1", "gzip", false],
  ["zstd;q=0, *", "gzip", false],
  ["", undefined, false],
  ["identity", undefined, false],
  ["br, deflate", undefined, false],
  ["gzip;q=0", undefined, false],
  ["gzip;q=0.5, identity", undefined, false],
  ["gzip;q=0.5, identity;q=0.5", "gzip", false],
  ["identity;q=0", undefined, true],
  ["br, identity;q=0", undefined, true],
  ["*;q=0", undefined, true],
  ["gzip, *;q=0", "gzip", true],
  ["identity, *;q=0", undefined, false],
  ["identity;q=0, gzip", "gzip", true],
  ["identity;q=0.000", undefined, true],
  // What cannot be read is left out.
  ["identity;q=none", undefined, false],
  ["gzip;q=2", undefined, false],
  [";;,=,gzip ;q=0.3 ,,", "gzip", false],
])("Accept-Encoding: %s", (accept, name, isPlainRefused) => {
  expect(chooseCoding(accept, ["zstd", "gzip"])).toEqual({ name, isPlainRefused });
});

const own = "application/graphql-response+json";
const json = "application/json";
test.each<[accept: string | null, type: string | undefined]>([
  [null, json],
  ["*/*", json],
  [own, own],
  [json, json],
  [`${own}; charset=utf-8, ${json}; charset=utf-8`, own],
  [`${json}, ${own}`, own],
  [`${own};q=0.9, ${json}`, json],
  [`${own};q=0.9, */*`, json],
  [`${own}, */*;q=0.1`, own],
  [`${own};q=0`, undefined],
  [`${own};q=0, */*`, json],
  [`${json};q=0, */*`, own],
  [`${json};q=0, ${own}`, own],
  ["application/*;q=0, */*", undefined],
  // Java's HttpURLConnection, where nothing else is said.
  ["text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", json],
  [`${json};q=0.33333`, json],
  // What cannot be read names none, and refuses none.
  ["", json],
  ["  ", json],
  [`${json};q=1.5`, json],
  [`${own};q=2`, own],
  [`${json};q=., ${own};q=`, json],
  [`${json};q=2, ${own}`, own],
  ["text/html", undefined],
])("GraphQL answers Accept: %s as %s", (accept, type) => {
  expect(chooseGraphqlType(accept)).toBe(type);
});

test.each<[accept: string | null, form: string | undefined]>([
  [null, undefined],
  ["text/csv", "text/csv"],
  ["text/csv, application/json", undefined],
  ["text/csv, application/json;q=0.9", "text/csv"],
  ["text/csv;q=0.5, application/x-ndjson", "application/x-ndjson"],
  ["text/csv, */*", "text/csv"],
  ["text/csv;q=0.9, */*", undefined],
  ["text/csv;q=0", undefined],
  ["text/csv;q=0, application/json;q=0", undefined],
])("of two forms beside JSON, Accept: %s asks for %s", (accept, form) => {
  const offered = [{ mediaType: "text/csv" }, { mediaType: "application/x-ndjson" }];
  expect(chooseRepresentation(accept, offered)?.mediaType).toBe(form);
});

test("a type with a weight of 0 is neither taken nor named", () => {
  expect(isMediaTypeAccepted("text/html;q=0, */*", "text/html")).toBe(false);
  expect(isMediaTypeNamed("text/html;q=0, */*", "text/html")).toBe(false);
  expect(isMediaTypeNamed("Text/HTML; charset=utf-8; q=0.1", "text/html")).toBe(true);
  expect(isMediaTypeNamed("*/*", "text/html")).toBe(false);
});
