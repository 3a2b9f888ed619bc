// Texts of existing clients: what tags of samples and attributes of log lines are as such, and a time that finds a sample.
import { isObjectType } from "graphql";
import { afterAll, expect, test } from "vitest";
import type { Attributes } from "#src/core/rows.ts";
import type { Backend } from "#src/store/backend.ts";
import { createDemo, loadPlainSchema } from "../../support/demo-server.ts";

const tags: Attributes = {
  "app.tag.text": "a",
  "app.tag.long": 9_007_199_254_740_993n,
  "app.tag.list": [1, 9_007_199_254_740_993n, "b"],
};
const json = '{"a":[1,2.50,"b",{"c":3}],"n":{"big":9007199254740993,"t":true,"z":null},"x":1.0}';
const addTags = (backend: Backend): Backend => {
  const { traces, logs } = backend.stores;
  if (traces === undefined || logs === undefined) throw new Error("no traces or logs");
  const own: typeof traces = {
    ...traces,
    async *summaries(query, signal) {
      for await (const batch of traces.summaries(query, signal)) yield batch.map((row) => ({ ...row, tags }));
    },
  };
  const ownLogs: typeof logs = {
    ...logs,
    async *lines(query, signal) {
      for await (const batch of logs.lines(query, signal)) yield batch.map((line) => ({ ...line, json }));
    },
  };
  return { ...backend, stores: { ...backend.stores, traces: own, logs: ownLogs } };
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

interface Errors {
  readonly exceptionIncidents: readonly {
    readonly sample: { readonly id: string; readonly time: string } | null;
  }[];
}

test("a sample is found by its time, which is any text to the schema", async () => {
  const query =
    'query ($at: String) { app(id: "demo-shop") { exceptionIncidents(limit: 1) { sample(timestamp: $at) { id time } } } }';
  const ask = (at: string | null) => demo.graphql(query, { at });
  const read = async (at: string | null) => {
    const { data } = await ask(at);
    return (data?.app as Errors | undefined)?.exceptionIncidents[0];
  };
  const newest = await read(null);
  const at = newest?.sample?.time ?? "";
  expect(await read(at)).toEqual(newest);
  expect(await read(at.replace("Z", "+00:00"))).toEqual(newest);
  expect(await read("2026-01-01T00:00:00Z")).toEqual({ sample: null });
  for (const wrong of ["yesterday", "", "2026-01-15T11:00:00"]) {
    const { errors } = await ask(wrong);
    expect(errors?.[0]?.extensions).toMatchObject({
      status: 422,
      details: { issues: [{ path: "timestamp" }] },
    });
  }
});

test("a sample that a search finds names its incident as one below the incident does", async () => {
  const { data, errors } = await demo.graphql(`{
    app(id: "demo-shop") { performanceIncidents { samples(limit: 1) { id incidentId } } }
    organization(slug: "readout") { search(sampleType: PERFORMANCE) { ... on PerformanceSample { id incidentId } } }
  }`);
  expect(errors).toBeUndefined();
  type Samples = readonly { readonly id: string; readonly incidentId: string }[];
  const { app, organization } = data as unknown as {
    readonly app: { readonly performanceIncidents: readonly { readonly samples: Samples }[] };
    readonly organization: { readonly search: Samples };
  };
  const found = new Map(organization.search.map(({ id, incidentId }) => [id, incidentId]));
  const listed = app.performanceIncidents.flatMap(({ samples }) => samples).filter(({ id }) => found.has(id));
  expect(listed).not.toEqual([]);
  for (const { id, incidentId } of listed) expect(found.get(id)).toBe(incidentId);
});

test("attributes of log lines keep the spelling of their numbers, in lists too", async () => {
  const { data, errors } = await demo.graphql(
    '{ app(id: "demo-shop") { logs { lines(limit: 1) { attributes { key value } } } } }',
  );
  expect(errors).toBeUndefined();
  const attributes = [
    { key: "a", value: '[1,2.50,"b",{"c":3}]' },
    { key: "n.big", value: "9007199254740993" },
    { key: "n.t", value: "true" },
    { key: "n.z", value: "null" },
    { key: "x", value: "1.0" },
  ];
  expect(data?.app).toEqual({ logs: { lines: [{ attributes }] } });
});

test("a line's fields are read as they are, without a call of a resolver for each alias of each line", async () => {
  const { schema } = await loadPlainSchema();
  for (const name of ["AppLogLine", "KeyStringValue"]) {
    const type = schema.getType(name);
    if (!isObjectType(type)) throw new Error(`no type ${name}`);
    for (const field of Object.values(type.getFields())) expect(field.resolve, field.name).toBeUndefined();
  }
  const { data, errors } = await demo.graphql(
    `{ app(id: "demo-shop") { logs { lines(limit: 1) {
      severity hostname group a: attributes { key } b: attributes { key } source { id name type fmt canBeModified }
    } } } }`,
  );
  expect(errors).toBeUndefined();
  const { logs } = (data?.app ?? {}) as { readonly logs?: { readonly lines: readonly LineAnswer[] } };
  expect(logs?.lines).toMatchObject([
    { source: { id: "app", name: "app", type: "custom", fmt: "JSON", canBeModified: false } },
  ]);
  expect(logs?.lines[0]?.a).toEqual(logs?.lines[0]?.b);
});

interface LineAnswer {
  readonly a: unknown;
  readonly b: unknown;
}
