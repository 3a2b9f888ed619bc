// Long lists are completed in turns of the event loop, and answered as if they were not.
import { setImmediate as nextTurn } from "node:timers/promises";
import { buildSchema, execute, parse } from "graphql";
import { afterAll, expect, test } from "vitest";
import type { Site } from "#src/access/sites.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { completeListsInTurns } from "#src/graphql/lists/list-turns.ts";
import type { Backend } from "#src/store/backend.ts";
import type { LogStore } from "#src/store/logs.ts";
import { clock, createDemo, loadPlainSchema } from "../support/demo-server.ts";

const lines: LogStore["lines"] = async function* ({ sources: [{ id: source_id }] }) {
  yield Array.from(
    { length: 3_000 },
    (_, n): LogLine => ({
      id: `l${n}`,
      time: fromMillis(clock - n),
      source_id,
      severity: "info",
      message: "m",
      json: `{"trace_id":"${n.toString(16)}"}`,
    }),
  );
};
let reads = 0;
const countReads = (backend: Backend): Backend => {
  const { traces } = backend.stores;
  if (traces === undefined) throw new Error("no traces");
  const find: typeof traces.find = (...asked) => {
    reads += 1;
    return traces.find(...asked);
  };
  return { ...backend, stores: { ...backend.stores, traces: { ...traces, find } } };
};
function withLines(site: Site): Site {
  return { ...site, ...(site.logs && { logs: { ...site.logs, store: { ...site.logs.store, lines } } }) };
}
const demo = await createDemo({
  watch: countReads,
  graphql: loadPlainSchema,
  site: withLines,
});
afterAll(() => demo.close());

const readLines = (rows: number, fields: string) =>
  `logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: ${rows}, order: DESC }) { ${fields} }`;

/** The most rows whose fields have been read within one turn of the event loop. */
async function countRowsOfTurn(query: string): Promise<number> {
  const { schema } = await loadPlainSchema();
  const type = schema.getType("Trace");
  if (type === undefined || !("getFields" in type)) throw new Error("no type Trace");
  const field = type.getFields().spans;
  if (field === undefined || !("resolve" in field)) throw new Error("no field Trace.spans");
  const { resolve } = field;
  let inTurn = 0;
  let most = 0;
  let isOver = false;
  field.resolve = () => {
    inTurn += 1;
    most = Math.max(most, inTurn);
    // Some time passes, as with a field that costs more.
    for (const until = performance.now() + 0.1; performance.now() < until; );
    return [];
  };
  const counting = (async () => {
    while (!isOver) {
      inTurn = 0;
      await nextTurn();
    }
  })();
  try {
    const { errors, data } = await demo.graphql(query);
    expect(errors).toBeUndefined();
    expect(data?.logs_lines).toHaveLength(3_000);
  } finally {
    field.resolve = resolve;
    isOver = true;
    await counting;
  }
  return most;
}

test.each([
  ["compiled", ""],
  ["executed as usual", "@include(if: true)"],
])(
  "the rows of a long list have their fields read in many turns, in a query that is %s",
  async (_, directive) => {
    const fields = `id ${directive} a: trace { spans { span_id } } b: trace { spans { span_id } }`;
    expect(await countRowsOfTurn(`{ ${readLines(3_000, fields)} }`)).toBeLessThan(1_500);
  },
);

test("rows are in their places, and those that a link answers too", async () => {
  const aliases = Array.from({ length: 10 }, (_, at) => `a${at}: trace { trace_id }`).join(" ");
  const { data, errors } = await demo.graphql(`{ ${readLines(3_000, `id ${aliases} pod { pod_name }`)} }`);
  expect(errors).toBeUndefined();
  const expected = Array.from({ length: 3_000 }, (_, n) => {
    const trace = { trace_id: n.toString(16) };
    const own = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`a${at}`, trace]));
    return { id: `l${n}`, ...own, pod: null };
  });
  expect(data?.logs_lines).toEqual(expected);
});

test("rows that are completed in many turns ask for their links two hundred at a time", async () => {
  const fields = Array.from({ length: 9 }, (_, at) => `a${at}: id`).join(" ");
  reads = 0;
  const { errors } = await demo.graphql(`{ ${readLines(3_000, `${fields} trace { spans { span_id } }`)} }`);
  expect(errors).toBeUndefined();
  expect(reads).toBe(15);
});

test("values are counted over all lists of an answer, with the items of lists within rows", async () => {
  const small = await createDemo({ graphql: loadPlainSchema, limits: { rows: 1_000 }, site: withLines });
  const ask = (rows: number, fields: string) =>
    small.graphql(`{ app(id: "demo-shop") { logs { lines(limit: ${rows}) { ${fields} } } } }`);
  const attributes = (aliases: number) =>
    Array.from({ length: aliases }, (_, at) => `a${at}: attributes { key value }`).join(" ");
  expect((await ask(900, "attributes { key }")).errors).toBeUndefined();
  // Each line and its attribute are an object, and ten plain fields count as one.
  expect((await ask(900, `id ${attributes(9)}`)).errors).toBeUndefined();
  const { data, errors } = await ask(900, attributes(12));
  expect(data).toEqual({ app: { logs: { lines: null } } });
  expect(errors).toMatchObject([
    {
      message: expect.stringMatching(/more than 10,?000 values; ask for fewer rows/),
      path: ["app", "logs", "lines"],
      extensions: { status: 422, slug: "result_too_large", details: { limit: 10_000 } },
    },
  ]);
  const links = Array.from({ length: 10 }, (_, at) => `a${at}: trace { trace_id }`).join(" ");
  // A fragment that is spread twice asks for its fields once.
  const spread = `{ ${readLines(900, "...Links ...Links")} } fragment Links on LogLine { ${links} }`;
  expect((await small.graphql(spread)).errors).toBeUndefined();
  // What directives leave out does not count.
  const skipped = `{ ${readLines(900, `id ... @skip(if: true) { ${links} a10: trace { trace_id } }`)} }`;
  expect((await small.graphql(skipped)).errors).toBeUndefined();
  const switched = (isOn: boolean) =>
    small.graphql(
      `query ($on: Boolean!) { ${readLines(900, "id ...Links @include(if: $on)")} }
       fragment Links on LogLine { ${links} a10: trace { trace_id } }`,
      { on: isOn },
    );
  expect((await switched(false)).errors).toBeUndefined();
  expect((await switched(true)).errors).toMatchObject([{ extensions: { slug: "result_too_large" } }]);
  const both = `{ a: ${readLines(600, links)} b: ${readLines(400, links)} }`;
  const answer = await small.graphql(both);
  expect(answer.errors).toMatchObject([{ extensions: { slug: "result_too_large" } }]);
  await small.close();
});

test("rows that are promises are waited for as they are, those that fail too", async () => {
  const schema = buildSchema("type Query { rows: [Row] } type Row { id: ID }");
  const rows = schema.getQueryType()?.getFields().rows;
  if (rows === undefined) throw new Error("no field Query.rows");
  rows.resolve = () =>
    Array.from({ length: 3_000 }, async (_, id) => {
      await undefined;
      if (id % 1_000 === 999) throw new Error("a row failed");
      return { id };
    });
  const aliases = Array.from({ length: 12 }, (_, at) => `a${at}: id`).join(" ");
  // Vitest fails where a rejection has no handler.
  const { data, errors } = await execute({
    schema: completeListsInTurns(schema, false),
    document: parse(`{ rows { ${aliases} } }`),
    contextValue: { readout: {} },
  });
  expect(errors?.map(({ path }) => path)).toEqual([999, 1_999, 2_999].map((row) => ["rows", row]));
  expect(data?.rows).toHaveLength(3_000);
});
