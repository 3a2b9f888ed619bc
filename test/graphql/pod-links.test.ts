// Links between lines, spans and pods where pods of several namespaces have one name.
import { afterAll, describe, expect, test } from "vitest";
import { createMemoryKubernetes } from "#resolvers/memory/stores/kubernetes-store.ts";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { fromMillis, type TimeRange, toMillis } from "#src/core/time.ts";
import { base, model } from "../conformance/kubernetes-fixture.ts";
import { observeModel } from "../conformance/observed-cluster.ts";
import { clock, createDemo, type Demo } from "../support/demo-server.ts";

const minute = 60_000;
const [sample] = observeModel(model, base).pods;
if (sample === undefined) throw new Error("the fixture has no pod");
const buildPod = (pod_namespace: string, pod_name: string) => ({
  ...sample,
  pod_namespace,
  pod_name,
  pod_uuid: `${pod_namespace}/${pod_name}`,
});

interface WrittenLine {
  readonly id: string;
  readonly body: object;
  readonly minutesAgo?: number;
}

/** Notes the time at which pods are looked at, and the range in which lines are. */
interface Watch {
  readonly looked?: (time: number) => void;
  readonly read?: (range: TimeRange) => void;
}

/** A site that has these pods at all times, and these lines. */
function createCluster(
  pods: readonly ReturnType<typeof buildPod>[],
  lines: readonly WrittenLine[],
  { looked, read }: Watch = {},
): Promise<Demo> {
  const store = createMemoryLogs();
  const written = lines.map(({ id, body, minutesAgo = 0.5 }) => ({
    id,
    time: fromMillis(clock - minutesAgo * minute),
    severity: "info" as const,
    message: id,
    json: JSON.stringify(body),
  }));
  const clusterStore = createMemoryKubernetes((_, time) => {
    looked?.(time);
    return { nodes: [], pods };
  });
  return createDemo({
    site: ({ logs, kubernetes, ...site }) => {
      for (const source of logs?.sources.values() ?? [])
        if (source.id === "app") store.add(source.index, written);
      return {
        ...site,
        ...(logs && {
          logs: {
            ...logs,
            store: {
              lines: (query, signal) => {
                read?.(query.range);
                return store.lines(query, signal);
              },
            },
          },
        }),
        ...(kubernetes && { kubernetes: { ...kubernetes, store: clusterStore } }),
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
  const dotted = { "k8s.pod.name": "db-0", "k8s.namespace.name": "beta" };
  const nested = { k8s: { pod: { name: "db-0" }, namespace: { name: "beta" } } };
  const forms = {
    k8s: dotted,
    filebeat: { kubernetes: { namespace: "beta", pod: { name: "db-0" } } },
    "fluent-bit": { kubernetes: { namespace_name: "beta", pod_name: "db-0" } },
    vector: { kubernetes: { pod_namespace: "beta", pod_name: "db-0" } },
    nested,
    resource: { resource: dotted },
    "nested resource": { resource: nested },
    "raw resource": { Resource: nested },
    "resource of attributes": { resource: { attributes: dotted } },
    "resource of an older template": {
      resource: { "attributes.k8s@pod@name": "db-0", "attributes.k8s@namespace@name": "beta" },
    },
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

describe("rows far apart", async () => {
  const looked: number[] = [];
  const ranges: TimeRange[] = [];
  const days = 3;
  const pods = Array.from({ length: 100 }, (_, n) => buildPod("shop", `web-${n}`));
  const write = (id: string, pod: string, minutesAgo: number) => ({
    id,
    minutesAgo,
    body: { "k8s.pod.name": pod, "k8s.namespace.name": "shop" },
  });
  const cluster = await createCluster(
    pods,
    [
      write("old", "web-1", days * 1_440),
      // The hours between have many lines of the pod, which nobody asks for.
      ...Array.from({ length: 600 }, (_, n) => write(`between-${n}`, "web-1", 30 + 60 * (n % 50) + n / 60)),
      write("new", "web-2", 2),
    ],
    { looked: (time) => void looked.push(time), read: (range) => void ranges.push(range) },
  );
  afterAll(() => cluster.close());

  test("lines lead to their pods, which are looked at in the minutes of the lines only", async () => {
    looked.length = 0;
    const { data, errors } = await cluster.graphql(`{
      logs_lines(site_id: "demo-shop", source_ids: ["app"], use_expressions: true, query: "message=old OR message=new",
        pagination: { per_page: 5, order: ASC }) { id pod { pod_name } }
    }`);
    expect(errors).toBeUndefined();
    expect(data?.logs_lines).toEqual([
      { id: "old", pod: { pod_name: "web-1" } },
      { id: "new", pod: { pod_name: "web-2" } },
    ]);
    // Each with the minute before it.
    expect(looked).toHaveLength(4);
  });

  test("pods lead to their lines, which are read in the minutes of the rows only", async () => {
    const from = new Date(clock - days * 1_440 * minute).toISOString();
    const to = new Date(clock).toISOString();
    ranges.length = 0;
    const { data, errors } = await cluster.graphql(`{
      kubernetes_pods(site_id: "demo-shop", from: "${from}", to: "${to}", pod_name: "web-1") { timestamp log_lines { id } }
    }`);
    expect(errors).toBeUndefined();
    const found = data?.kubernetes_pods as readonly {
      readonly log_lines: readonly { readonly id: string }[];
    }[];
    expect(found).toHaveLength(days * 24 + 1);
    expect(found.flatMap(({ log_lines }) => log_lines.map(({ id }) => id))).toEqual(["old"]);
    const length = ranges.reduce((sum, range) => sum + toMillis(range.to) - toMillis(range.from), 0);
    expect(length).toBe(found.length * minute);
  });
});
