// What the fields of existing clients ask of a source, and that no answer multiplies by itself.
import { afterAll, describe, expect, test } from "vitest";
import type { Backend } from "#src/store/backend.ts";
import { createCallLog } from "../../support/call-log.ts";
import { createDemo } from "../../support/demo-server.ts";
import { askApp } from "./ask-app.ts";

const { asked: calls, counted } = createCallLog();
/** The store, whose functions note each call. */
const watchCalls = <S extends object>(store: S): S =>
  new Proxy(store, {
    get: (target, name) => {
      const own: unknown = Reflect.get(target, name);
      if (typeof own !== "function") return own;
      return counted(String(name), (...given) => Reflect.apply(own, target, given) as unknown);
    },
  });
const watch = (backend: Backend): Backend => {
  const { logs, metrics, traces } = backend.stores;
  if (logs === undefined || metrics === undefined || traces === undefined)
    throw new Error("a store is missing");
  const watched = { logs: watchCalls(logs), metrics: watchCalls(metrics), traces: watchCalls(traces) };
  return { ...backend, stores: { ...backend.stores, ...watched } };
};
const demo = await createDemo({ watch });
afterAll(() => demo.close());

function ask(fields: string) {
  calls.length = 0;
  return askApp(fields, demo);
}

interface IncidentAnswer {
  readonly number: number;
  readonly digests: readonly string[];
  readonly count: number;
  readonly samples: readonly {
    readonly id: string;
    readonly time: string;
    readonly timeline?: readonly unknown[];
  }[];
}

test("figures and samples of all errors of a page are one reading each, whatever the page holds", async () => {
  const { app, errors } = await ask(
    "exceptionIncidents(limit: 4) { number digests count createdAt samples(limit: 2) { id time exception { name } } }",
  );
  expect(errors).toEqual([]);
  const incidents = app.exceptionIncidents as IncidentAnswer[];
  expect(incidents).toHaveLength(4);
  // One each of the page, of all its figures and of all its samples: one store has all parts of the site.
  expect(calls.filter((name) => name === "summaries")).toHaveLength(3);
  for (const { digests, count, samples } of incidents) {
    const body = {
      site_ids: ["demo-shop"],
      digests,
      pagination: { per_page: 10_000, cursor: { time: null } },
    };
    const { body: rows } = await demo.rest("POST", "/api/v2/tracing/traces/errors", body);
    const listed = rows as { trace_id: string; span_id: string }[];
    expect(count).toBe(listed.length);
    expect(samples.map(({ id }) => id)).toEqual(
      listed.slice(0, 2).map(({ trace_id, span_id }) => `${trace_id}-${span_id}`),
    );
  }
});

test("actions have the figures of the route", async () => {
  const { app } = await ask(
    "performanceIncidents { number digests actionNames namespace count mean hasNPlusOne samples(limit: 1) { id timeline { name level } } }",
  );
  const incidents = app.performanceIncidents as (IncidentAnswer & { actionNames: string[]; mean: number })[];
  expect(calls.filter((name) => name === "actions")).toHaveLength(1);
  const body = { site_id: "demo-shop", from: "2025-12-16T12:00:00Z", to: "2026-01-15T12:00:00Z" };
  const { body: rows } = await demo.rest("POST", "/api/v2/tracing/actions", body);
  const listed = rows as { action: string; digest: string; throughput: number; mean: number }[];
  expect(incidents).toHaveLength(listed.length);
  for (const { digest, throughput, mean, action } of listed) {
    const found = incidents.find(({ digests }) => digests[0] === digest);
    expect(found).toMatchObject({ actionNames: [action], count: throughput, mean });
    expect(found?.samples[0]?.timeline?.length).toBeGreaterThan(0);
  }
});

test("an incident by number and by digest is that of the list", async () => {
  const { app } = await ask(
    "incidents(limit: 50) { ... on IncidentInterface { __typename number digests } }",
  );
  const incidents = app.incidents as { __typename: string; number: number; digests: string[] }[];
  expect(new Set(incidents.map(({ __typename }) => __typename)).size).toBe(2);
  for (const { __typename, number, digests } of incidents.slice(0, 6)) {
    const found = await ask(
      `incident(incidentNumber: ${number}) { __typename } incidentByDigest(digest: "${digests[0]}") { ... on IncidentInterface { number } }`,
    );
    expect(found.app).toEqual({ incident: { __typename }, incidentByDigest: { number } });
  }
  expect((await ask("incident(incidentNumber: 1) { __typename }")).app).toEqual({ incident: null });
});

describe("what a row leads back to reads no source", () => {
  test.each([
    ["incidents of the app of an incident", "exceptionIncidents { app { id } }", "exceptionIncidents { id }"],
    [
      "samples of the incident of a sample",
      "exceptionIncidents { samples { incident { ... on ExceptionIncident { id } } } }",
      "samples { id }",
    ],
    [
      "markers of the app of a sample",
      "exceptionIncidents { samples { app { id } } }",
      "deployMarkers { id }",
    ],
    ["apps of the organization of an app", "organization { id }", "apps { id }"],
    [
      "counts of the source of a line",
      "logs { lines(limit: 2) { source { id } } }",
      "metrics { series { name } }",
    ],
  ])("%s", async (_, fields, inner) => {
    expect((await ask(fields)).errors).toEqual([]);
    const read = [...calls];
    const { errors } = await ask(fields.replace(/\{ id \}/, `{ id ${inner} }`));
    expect(calls).toEqual(read);
    expect(errors.length).toBeGreaterThan(0);
    for (const { message } of errors) expect(message).toMatch(/not answered below the rows of an app/);
  });

  test("but is named", async () => {
    const { app, errors } = await ask(
      "organization { slug } exceptionIncidents(limit: 1) { app { id name } samples(limit: 1) { app { id } incident { ... on ExceptionIncident { count } } } }",
    );
    expect(errors).toEqual([]);
    expect(app).toMatchObject({
      organization: { slug: "readout" },
      exceptionIncidents: [{ app: { id: "demo-shop" } }],
    });
  });
});

const reversed = 'start: "2026-01-15T11:00:00.001Z", end: "2026-01-15T11:00:00Z"';

test.each([
  ["exceptionIncidents(limit: -1) { id }", "limit"],
  ["exceptionIncidents(limit: 1001) { id }", "limit"],
  ["incidents(offset: 100001) { __typename }", "offset"],
  ["exceptionIncidents { samples(limit: 1001) { id } }", "limit"],
  ['deployMarkers(start: "yesterday") { id }', "start"],
  [`deployMarkers(${reversed}) { id }`, "start"],
  [`markers(${reversed}) { __typename }`, "start"],
  [`paginatedExceptionIncidents(${reversed}) { total }`, "start"],
  [`exceptionIncidents { samples(${reversed}) { id } }`, "start"],
  [`metrics { list(${reversed}, query: []) { total } }`, "start"],
  ["deployMarkers(limit: 5000) { id }", "limit"],
  ["metrics { keys(limit: 1001) { name } }", "limit"],
  [
    `metrics { list(timeframe: R1H, query: [${'{ name: "x", tags: [], fields: [] }'.repeat(101)}]) { total } }`,
    "query",
  ],
  ["metrics { keys(offset: -1) { name } }", "offset"],
])("%s is refused at %s", async (fields, path) => {
  const { errors } = await ask(fields);
  expect(errors[0]?.extensions).toMatchObject({ status: 422, details: { issues: [{ path }] } });
});

test("a page of no incidents has the total of all", async () => {
  const read = async (limit: number) => {
    const { app } = await ask(`paginatedExceptionIncidents(limit: ${limit}) { total rows { id } }`);
    return app.paginatedExceptionIncidents as { readonly total: number; readonly rows: readonly object[] };
  };
  const { total } = await read(100);
  expect(total).toBeGreaterThan(0);
  expect(await read(0)).toEqual({ total, rows: [] });
});

test("keys of a tag are those of all metrics, page by page", async () => {
  const { app } = await ask("metrics { keys(limit: 100) { name tags { key } } }");
  type Key = { readonly name: string; readonly tags: readonly { readonly key: string }[] };
  const all = (app.metrics as { keys: readonly Key[] }).keys;
  const [rarest] = [
    ...Map.groupBy(
      all.flatMap(({ tags }) => tags.map(({ key }) => key)),
      (key) => key,
    ),
  ]
    .toSorted(([, a], [, b]) => a.length - b.length)
    .map(([key]) => key);
  const wanted = all.filter(({ tags }) => tags.some(({ key }) => key === rarest));
  const read = async (limit: number, offset: number) => {
    const { app, errors } = await ask(
      `metrics { keys(tags: [{ key: "${rarest}", value: "" }], limit: ${limit}, offset: ${offset}) { name tags { key } } }`,
    );
    expect(errors).toEqual([]);
    return (app.metrics as { keys: readonly Key[] }).keys;
  };
  expect(wanted.length).toBeGreaterThan(0);
  expect(await read(100, 0)).toEqual(wanted);
  const names = [...new Set(wanted.map(({ name }) => name))];
  const pages = await Promise.all(names.map((_, offset) => read(1, offset)));
  expect(pages.flat()).toEqual(wanted);
});

test("a metric's field is listed by several aggregates, in the order that they are asked for", async () => {
  const list = async (fields: string) => {
    const query = `[{ name: "cpu", tags: [{ key: "hostname", value: "*" }], fields: [${fields}] }]`;
    const { app, errors } = await ask(
      `metrics { list(timeframe: R1H, query: ${query}) { rows { id fields { key value } } } }`,
    );
    expect(errors).toEqual([]);
    const { list: found } = app.metrics as {
      readonly list: {
        readonly rows: readonly { readonly id: string; readonly fields: readonly object[] }[];
      };
    };
    return new Map(found.rows.map(({ id, fields }) => [id, fields]));
  };
  const average = "{ field: GAUGE, aggregate: AVG }";
  const greatest = "{ field: GAUGE, aggregate: MAX }";
  const [both, averages, maxima] = [
    await list(`${greatest}, ${average}`),
    await list(average),
    await list(greatest),
  ];
  expect(both.size).toBeGreaterThan(0);
  for (const [id, fields] of both)
    expect(fields).toEqual([...(maxima.get(id) ?? []), ...(averages.get(id) ?? [])]);
  expect([...averages.values()].flat()[0]).toMatchObject({ key: "gauge" });
});

test("a query cannot leave the severities that it is asked with", async () => {
  for (const query of ["a) OR (b", "severity=[", "("]) {
    const { errors } = await ask(
      `logs { lines(query: ${JSON.stringify(query)}, severities: [ERROR]) { id } }`,
    );
    expect(errors[0]?.extensions).toMatchObject({ status: 422 });
  }
  const { app, errors } = await ask(
    'logs { lines(query: "severity=[error,info] OR status:2", severities: [ERROR, WARN], limit: 50) { severity } }',
  );
  expect(errors).toEqual([]);
  const { lines } = app.logs as { lines: { severity: string }[] };
  expect(new Set(lines.map(({ severity }) => severity))).toEqual(new Set(["ERROR"]));
});

test("a mutation is refused with one sentence", async () => {
  const { errors, data } = await demo.graphql(
    'mutation { updateIncident(number: 1, appId: "demo-shop") { __typename } }',
  );
  expect(data ?? undefined).toBeUndefined();
  expect(errors?.map(({ message }) => message)).toEqual(["Readout only reads: it has no mutations."]);
});

test("the deploys of a namespace are those that the app has of it, which name it", async () => {
  const marker = "id namespace createdAt exceptionCount";
  const { app, errors } = await ask(
    `namespaces { name deployMarkers { ${marker} } } deployMarkers { namespace }`,
  );
  expect(errors).toEqual([]);
  const namespaces = app.namespaces as { name: string; deployMarkers: { namespace: string }[] }[];
  expect(namespaces.some(({ deployMarkers }) => deployMarkers.length > 0)).toBe(true);
  for (const { name, deployMarkers } of namespaces) {
    const found = await ask(`deployMarkers(namespaces: ["${name}"], limit: 5) { ${marker} }`);
    expect(deployMarkers).toEqual(found.app.deployMarkers);
    for (const { namespace } of deployMarkers) expect(namespace).toBe(name);
  }
  for (const { namespace } of app.deployMarkers as { namespace: unknown }[]) expect(namespace).toBe(null);
});

test("an empty list of namespaces names all of them", async () => {
  const { app } = await ask("namespaces { name } none: namespaces(namespaces: []) { name }");
  expect(app.none).toEqual(app.namespaces);
  expect(app.none).not.toEqual([]);
});

test("a metric that there is not has no keys", async () => {
  const { app, errors } = await ask('metrics { keys(name: "nope") { name } }');
  expect(errors).toEqual([]);
  expect(app.metrics).toEqual({ keys: [] });
});

test("what no incident and no site has is empty or null", async () => {
  const { app, errors } = await ask(
    "gettingStartedItems { id } checkIns { triggers { id } } exceptionIncidents(limit: 1) { integrations { __typename } logbook { id items { __typename } pinnedNoteId } } logs { vercelProjects { name } sources { export { id } } } organization { statusPages { id } statusPage { id } csvExports { id } hostedCollectors { id } billingCycleUsage { daysLeft } }",
  );
  expect(errors).toEqual([]);
  expect(app).toMatchObject({
    gettingStartedItems: [],
    checkIns: null,
    exceptionIncidents: [{ integrations: [], logbook: { id: "", items: [], pinnedNoteId: null } }],
    logs: { vercelProjects: [] },
    organization: {
      statusPages: [],
      statusPage: null,
      csvExports: [],
      hostedCollectors: [],
      billingCycleUsage: null,
    },
  });
});
