// What clients take, by their headers.
import { expect, test } from "vitest";
import { chooseCoding } from "#src/core/negotiation.ts";

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
