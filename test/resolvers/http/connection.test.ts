import { describe, expect, test } from "vitest";
import { kinds } from "#resolvers/index.ts";

describe.each(["elastic", "prometheus"])("address of %s", (kind) => {
  const parse = (url: string) => kinds.get(kind)?.parseConfig({ url });

  test.each(["http://host:9200", "https://host/prefix/", "http://[::1]:9090"])("accepts %s", (url) => {
    expect(parse(url)).toMatchObject({ url });
  });

  test.each([
    ["https://ana:secret@host", "without user and password"],
    ["https://ana@host", "without user and password"],
    ["https://host/?db=metrics", "without a query and a fragment"],
    ["https://host/#here", "without a query and a fragment"],
    ["localhost:9200", "expected an http:// or https:// address"],
    ["ftp://host", "expected an http:// or https:// address"],
    ["", "expected an http:// or https:// address"],
  ])("refuses %s", (url, reason) => {
    expect(() => parse(url)).toThrow(reason);
  });
});
