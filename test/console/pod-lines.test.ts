// The query behind "Its log lines" of a pod.
import { expect, test } from "vitest";
import { printPodQuery } from "#src/console/cluster/pods.js";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { listComparisons } from "#src/log-query/ast.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { namespacePaths, subjectPaths } from "#src/operations/link-operations.ts";

test.each<[object, boolean]>([
  [{ "k8s.pod.name": "db-0", "k8s.namespace.name": "beta" }, true],
  [{ kubernetes: { namespace: "beta", pod: { name: "db-0" } } }, true],
  [{ kubernetes: { namespace_name: "beta", pod_name: "db-0" } }, true],
  [{ kubernetes: { pod_namespace: "beta", pod_name: "db-0" } }, true],
  [{ resource: { "k8s.pod.name": "db-0", "k8s.namespace.name": "beta" } }, true],
  [{ k8s: { pod: { name: "db-0" }, namespace: { name: "beta" } } }, true],
  [{ resource: { k8s: { pod: { name: "db-0" }, namespace: { name: "beta" } } } }, true],
  [{ Resource: { k8s: { pod: { name: "db-0" }, namespace: { name: "beta" } } } }, true],
  [{ resource: { attributes: { "k8s.pod.name": "db-0", "k8s.namespace.name": "beta" } } }, true],
  [{ resource: { "attributes.k8s@pod@name": "db-0", "attributes.k8s@namespace@name": "beta" } }, true],
  [{ "k8s.pod.name": "db-0" }, true],
  [{ "k8s.pod.name": "db-0", "k8s.namespace.name": "" }, true],
  [{ "k8s.pod.name": "db-0", "k8s.namespace.name": "alpha" }, false],
  [{ kubernetes: { namespace: "alpha", pod: { name: "db-0" } } }, false],
  [{ kubernetes: { namespace_name: "alpha", pod_name: "db-0" } }, false],
  [{ kubernetes: { pod_namespace: "alpha", pod_name: "db-0" } }, false],
  [{ resource: { "k8s.pod.name": "db-0", "k8s.namespace.name": "alpha" } }, false],
  [{ k8s: { pod: { name: "db-0" }, namespace: { name: "alpha" } } }, false],
  [{ resource: { attributes: { "k8s.pod.name": "db-0", "k8s.namespace.name": "alpha" } } }, false],
  [{ resource: { "attributes.k8s@pod@name": "db-0", "attributes.k8s@namespace@name": "alpha" } }, false],
  [{ "k8s.pod.name": "db-1", "k8s.namespace.name": "beta" }, false],
  [{ "k8s.namespace.name": "beta" }, false],
])("a pod's lines are those that name it and no other namespace: %j is %s", (body, wanted) => {
  const line: LogLine = {
    id: "1",
    time: fromMillis(0),
    source_id: "app",
    severity: "info",
    message: "m",
    json: JSON.stringify(body),
  };
  const query = printPodQuery({ pod_name: "db-0", pod_namespace: "beta" });
  expect(matches(parse(query), line)).toBe(wanted);
});

test("a pod's lines name it where the API's own link to them reads it", () => {
  const comparisons = listComparisons(parse(printPodQuery({ pod_name: "db-0", pod_namespace: "beta" })));
  const pathsOf = (value: string) =>
    comparisons.flatMap((one) => (one.value === value && one.field.kind === "json" ? [one.field.path] : []));
  expect(pathsOf("db-0")).toEqual(subjectPaths.pod);
  expect(pathsOf("beta")).toEqual(namespacePaths);
});
