import fc from "fast-check";
import { expect, test } from "vitest";
import { normaliseStatement } from "#src/tracing/spans/normalise-statement.js";
import { startProcessorTime } from "../../support/cpu-time.ts";

test.each([
  ["SELECT * FROM users WHERE id = 17", "select * from users where id = ?"],
  ["select *\n  from users\twhere id=-3.5e-2", "select * from users where id=?"],
  ["SELECT name FROM t WHERE a IN (1, 'two', 0xff)", "select name from t where a in (?)"],
  ["SELECT 'it''s', 'a\\'b', x2 FROM t2", "select ?, ?, x2 from t2"],
  ["INSERT INTO t (a, b) VALUES (1, 2), (3, 4)", "insert into t (a, b) values (?)"],
  ["SELECT /* app:web */ a -- why\nFROM t", "select a from t"],
  ['SELECT "Name", `Key` FROM "Users" LIMIT 10', 'select "Name", `Key` from "Users" limit ?'],
  [
    "SELECT a::int FROM t WHERE b = $1 AND c = :name AND d = @p1",
    "select a::int from t where b = ? and c = ? and d = ?",
  ],
  ["UPDATE t SET a = %s, b = %(b)s", "update t set a = ?, b = ?"],
  ['{"find":"users","filter":{"_id":"5f1","n":12}}', '{"find":?,"filter":{"_id":?,"n":?}}'],
  ['{"in": ["a", "b", "c"]}', '{"in": [?]}'],
  ["GET user:1234", "get user:?"],
  ["HMGET session:5f3a-bc name", "hmget session:?-bc name"],
  ["SELECT '", "select ?"],
  ["", ""],
])("normaliseStatement: %s", (statement, normalised) => {
  expect(normaliseStatement(statement)).toBe(normalised);
});

test("normaliseStatement unites statements that differ only in values, and is idempotent", () => {
  const values = fc.record({
    id: fc.nat(),
    text: fc.stringMatching(/^[\w %:;,()-]*$/),
    list: fc.array(fc.nat(), { minLength: 1 }),
  });
  const write = ({ id, text, list }: { id: number; text: string; list: number[] }): string =>
    `SELECT * FROM t WHERE id=${id} AND name = '${text}' AND sku IN (${list.join(",")})`;
  const law = fc.property(values, values, (a, b) => {
    const normalised = normaliseStatement(write(a));
    expect(normaliseStatement(write(b))).toBe(normalised);
    expect(normaliseStatement(normalised)).toBe(normalised);
  });
  fc.assert(law);
});

test("normaliseStatement takes linear time on long statements", () => {
  const used = startProcessorTime();
  normaliseStatement(`SELECT ${"(".repeat(50_000)}'${"x".repeat(500_000)}`);
  normaliseStatement(`IN (${Array.from({ length: 100_000 }, (_, n) => n).join(", ")})`);
  expect(used()).toBeLessThan(2_000);
});
