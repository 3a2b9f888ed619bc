// Samples for existing clients: what their tags are as texts, and by which time one is found.
import { afterAll, expect, test } from "vitest";
import type { Attributes } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import { createDemo } from "../../support/demo-server.ts";

const tags: Attributes = {
  "app.tag.text": "a",
  "app.tag.long": 9_007_199_254_740_993n,
  "app.tag.list": [1, 9_007_199_254_740_993n, "b"],
};
const addTags = (backend: Backend): Backend => {
  const { traces } = backend.stores;
  if (traces === undefined) throw new Error("no traces");
  const own: typeof traces = {
    ...traces,
    async *summaries(query, signal) {
      for await (const batch of traces.summaries(query, signal)) yield batch.map((row) => ({ ...row, tags }));
    },
  };
  return { ...backend, stores: { ...backend.stores, traces: own } };
};
const demo = await createDemo({ watch: addTags });
afterAll(() => demo.close());

test("integers that a double cannot hold are the digits alone in the texts of tags", async () => {
  const { data, errors } = await demo.graphql(
    '{ app(id: "demo-shop") { exceptionIncidents(limit: 1) { samples(limit: 1) { id overview { key value } } } } }',
  );
  expect(errors).toBeUndefined();
  const { exceptionIncidents } = (data?.app ?? {}) as {
    readonly exceptionIncidents: readonly {
      readonly samples: readonly { readonly id: string; readonly overview: readonly object[] }[];
    }[];
  };
  const [sample] = exceptionIncidents[0]?.samples ?? [];
  const texts = {
    "app.tag.text": "a",
    "app.tag.long": "9007199254740993",
    "app.tag.list": '[1,9007199254740993,"b"]',
  };
  expect(sample?.overview).toEqual(Object.entries(texts).map(([key, value]) => ({ key, value })));
  const { body } = await demo.rest("GET", `/api/demo-shop/samples/${sample?.id}.json`);
  expect(body).toMatchObject({ tags: texts });
});
