// Large texts of an owner wait for each other, and for nobody else.
import { expect, test } from "vitest";
import { createJsonQueue } from "#src/core/json/json-queue.ts";

const list = (length: number) => Array.from({ length }, (_, n) => ({ n }));
const [largest, large] = [list(80_000), list(12_000)];

test("of the large texts of an owner one is parsed at a time, also after one that is no JSON", async () => {
  const { parse } = createJsonQueue();
  const order: string[] = [];
  const note = async (name: string, owner: string, text: string) => {
    const value = await parse(text, owner).catch(() => "no JSON");
    order.push(name);
    return value;
  };
  const values = await Promise.all([
    note("first", "ana", `${JSON.stringify(largest)},`),
    note("second", "ana", JSON.stringify(large)),
    note("other", "eve", JSON.stringify(large)),
    note("small", "ana", "[1]"),
  ]);
  expect(order).toEqual(["small", "other", "first", "second"]);
  expect(values).toEqual(["no JSON", large, large, [1]]);
});

test.each([
  ["[1,]", 3],
  ['{"\\u0041":1,}', 12],
  [`${JSON.stringify(large)},`, JSON.stringify(large).length],
])("a text that is no JSON tells where: %.20s", async (text, position) => {
  await expect(createJsonQueue().parse(text, "ana")).rejects.toMatchObject({
    name: "JsonSyntaxError",
    position,
  });
});
