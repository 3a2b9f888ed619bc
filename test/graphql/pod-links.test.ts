// Links between lines, spans and pods where pods of several namespaces have one name.
import { afterAll, describe, expect, test } from "vitest";
import { createMemoryKubernetes } from "#resolvers/memory/stores/kubernetes-store.ts";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { fromMillis } from "#src/core/time.ts";
import { base, model } from "../conformance/kubernetes-fixture.ts";
import { observeModel } from "../conformance/observed-cluster.ts";
import { clock, createDemo, type Demo } from "../support/demo-server.ts";

const minute = 60_000;
const [sample] = observeModel(model, base).pods;
if (sample === undefined) throw new Error("the fixture has no pod");
const buildPod = (pod_namespace: string, pod_name: string) => ({
  ...sample,
  ...{ pod_namespace, pod_name, pod_uuid: `${pod_namespace}/${pod_name}` },
});

interface WrittenLine {
  readonly id: string;
  readonly body: object;
  readonly minutesAgo?: number;
}

/** A site that has these pods at all times, and these lines. */
function createCluster(
  pods: readonly ReturnType<typeof buildPod>[],
  lines: readonly WrittenLine[],
): Promise<Demo> {
  const store = createMemoryLogs();
  const written = lines.map(({ id, body, minutesAgo = 0.5 }) => ({
    ...{ id, time: fromMillis(clock - minutesAgo * minute), severity: "info" as const, message: id },
    json: JSON.stringify(body),
  }));
  return createDemo({
    site: ({ logs, kubernetes, ...site }) => {
      for (const source of logs?.sources.values() ?? [])
        if (source.id === "app") store.add(source.index, written);
      return {
        ...site,
        ...(logs && { logs: { ...logs, store } }),
        ...(kubernetes && {
          kubernetes: { ...kubernetes, store: createMemoryKubernetes(() => ({ nodes: [], pods })) },
        }),
      };
    },
  });
}

interface PodAnswer {
  readonly log_lines?: readonly { readonly id: string }[];
  readonly row?: Pick<PodAnswer, "log_lines">;
}

const page = `site_id: "demo-shop", source_ids: ["app"], query: "", pagination: { per_page: 20, order: ASC }`;

describe("pods of two namespaces with one name", async () => {
  const forms = {
    k8s: { "k8s.pod.name": "db-0", "k8s.namespace.name": "beta" },
    filebeat: { kubernetes: { namespace: "beta", pod: { name: "db-0" } } },
    "fluent-bit": { kubernetes: { namespace_name: "beta", pod_name: "db-0" } },
    vector: { kubernetes: { pod_namespace: "beta", pod_name: "db-0" } },
    resource: { resource: { "k8s.pod.name": "db-0", "k8s.namespace.name": "beta" } },
  };
  const silent = { "k8s.pod.name": "db-0", "k8s.namespace.name": "" };
  const cluster = await createCluster(
    [buildPod("alpha", "db-0"), buildPod("beta", "db-0"), buildPod("beta", "web-0")],
    [
      ...Object.entries(forms).map(([id, body]) => ({ id, body })),
      { id: "silent", body: silent },
      { id: "alone", body: { kubernetes: { pod_name: "web-0" } } },
      { id: "gone", body: { "k8s.pod.name": "db-0", "k8s.namespace.name": "gamma" } },
    ],
  );
  afterAll(() => cluster.close());

  test("a line leads to the pod of its namespace, and to none where it may be of several", async () => {
    const { data, errors } = await cluster.graphql(
      `{ logs_lines(${page}) { id pod { pod_namespace pod_name } } }`,
    );
    expect(errors).toBeUndefined();
    const found = (data?.logs_lines ?? []) as readonly { readonly id: string; readonly pod: object | null }[];
    expect(Object.fromEntries(found.map(({ id, pod }) => [id, pod]))).toEqual({
      ...Object.fromEntries(
        Object.keys(forms).map((id) => [id, { pod_namespace: "beta", pod_name: "db-0" }]),
      ),
      silent: null,
      alone: { pod_namespace: "beta", pod_name: "web-0" },
      gone: null,
    });
  });

  test.each([
    ["alpha", ["silent"]],
    ["beta", [...Object.keys(forms), "silent"]],
  ])("a pod of %s leads to the lines that state no other namespace", async (namespace, wanted) => {
    const { data, errors } = await cluster.graphql(
      `{ pod(site_id: "demo-shop", namespace: "${namespace}", name: "db-0") { log_lines { id } row { log_lines { id } } } }`,
    );
    expect(errors).toBeUndefined();
    const { log_lines, row } = { ...(data?.pod as PodAnswer) };
    for (const lines of [log_lines, row?.log_lines])
      expect(lines?.map(({ id }) => id).toSorted()).toEqual(wanted.toSorted());
  });
});
