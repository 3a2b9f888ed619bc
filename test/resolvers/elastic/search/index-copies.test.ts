// Which indices are told as copies of others, off answers of any form.
import { expect, test } from "vitest";
import { listCopies } from "#resolvers/elastic/search/index-listing.ts";

const list = (answer: unknown) =>
  listCopies("es", { sendJson: async () => answer } as never, new AbortController().signal);

const original = { settings: { index: { uuid: "u1" } } };
const copy = { settings: { index: { uuid: "u2", resize: { source: { name: "a", uuid: "u1" } } } } };

test.each([{}, { settings: {} }, null, "closed"])(
  "an index whose settings are %j hides no copy of others",
  async (other) => {
    expect(await list({ a: original, b: copy, c: other })).toEqual(new Map([["b", "a"]]));
    expect(await list({ c: other, "restored-c": original })).toEqual(new Map([["restored-c", "c"]]));
  },
);

test.each(["<html>", null, [original]])("an answer that is %j is malformed", async (answer) => {
  await expect(list(answer)).rejects.toMatchObject({ name: "BackendError", failure: "malformed" });
});
