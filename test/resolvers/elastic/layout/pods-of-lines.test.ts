// Where the lines of each layout name their pod, as links read it.
import { expect, test } from "vitest";
import { readSubject } from "#src/operations/link-operations.ts";
import {
  buildMapping,
  createFakeIndex,
  type JsonObject,
  openIndices,
  readProperties,
} from "../../../support/elastic/layout-harness.ts";

const dotted = { "k8s.pod.name": "web-0", "k8s.namespace.name": "shop" };
const nested = { k8s: { pod: { name: "web-0" }, namespace: { name: "shop" } } };
const otel = { body: { text: "m" }, severity_number: 9 };
const collected = { Body: "m", SeverityNumber: 9, TraceFlags: 0 };
const exported = { Body: { value: "m" }, SeverityNumber: 9, TraceFlags: 0, TraceId: "4bf9" };
const prepper = { body: "m", time: "2026-01-15T10:00:00.000Z", observedTime: "2026-01-15T10:00:00.000Z" };

test.each<readonly [string, string, JsonObject]>([
  ["otel", "attributes", { ...otel, attributes: dotted, resource: { attributes: {} } }],
  ["otel", "resource", { ...otel, resource: { attributes: dotted } }],
  ["otel-none", "Attributes", { ...collected, Attributes: nested, Resource: {} }],
  ["otel-none", "Resource", { ...collected, Attributes: { n: 1 }, Resource: nested }],
  [
    "otel-none",
    "Attributes, by the opensearch exporter",
    {
      ...exported,
      Attributes: {},
      "Attributes.k8s.pod.name": "web-0",
      "Attributes.k8s.namespace.name": "shop",
    },
  ],
  ["otel-raw", "the root", { ...collected, ...nested, Resource: {} }],
  ["otel-raw", "Resource", { ...collected, Resource: nested }],
  ["otel-raw", "the root, by the opensearch exporter", { ...exported, ...dotted }],
  [
    "data-prepper",
    "resource, of the older template",
    {
      ...prepper,
      "resource.attributes.k8s@pod@name": "web-0",
      "resource.attributes.k8s@namespace@name": "shop",
    },
  ],
  ["data-prepper", "resource", { ...prepper, resource: { attributes: dotted } }],
  [
    "ss4o",
    "resource",
    {
      observedTimestamp: prepper.time,
      body: "m",
      instrumentationScope: { name: "io" },
      resource: { "service.name": "web", ...dotted },
    },
  ],
  [
    "ecs",
    "kubernetes",
    {
      ecs: { version: "8" },
      message: "m",
      kubernetes: { pod: { name: "web-0" }, namespace: "shop" },
    },
  ],
  ["fluent-bit", "kubernetes", { log: "m", stream: "stdout", kubernetes: nameIn("namespace_name") }],
  ["openshift", "kubernetes", { message: "m", viaq_msg_id: "1", kubernetes: nameIn("namespace_name") }],
  ["plain", "kubernetes", { message: "m", source_type: "x", kubernetes: nameIn("pod_namespace") }],
])("%s: %s", async (layout, _, document) => {
  const properties = readProperties({ mappings: buildMapping([document]) });
  const mappings = { properties: { ...properties, ...("time" in document && { time: { type: "date" } }) } };
  const { read, report } = await openIndices({ "logs-1": createFakeIndex([document], mappings) });
  expect((await report()).layout).toBe(layout);
  const [line] = await read();
  expect(readSubject("pod", line?.json), line?.json).toEqual({ id: "web-0", namespace: "shop" });
});

function nameIn(namespace: string): object {
  return { pod_name: "web-0", [namespace]: "shop" };
}
