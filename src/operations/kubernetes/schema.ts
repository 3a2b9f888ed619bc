// What the Kubernetes routes answer, for documentation.
import * as z from "zod";
import { containerStatuses, podPhases } from "../../core/rows.ts";
import { instantField, textField } from "../runtime/json-schema.ts";

const figure = (description: string, unit: string | undefined, example: number) =>
  z.number().meta({ description, ...(unit === undefined ? {} : { "x-unit": unit }), examples: [example] });
const bytes = (description: string) => figure(description, "B", 268_435_456);
const count = (description: string, example = 12) => figure(description, undefined, example);

const timestamp = instantField(
  "The snapshot's time, on the grid of its interval.",
  "2026-01-31T12:00:00.000Z",
);
const cpu = figure("CPU in use.", "billionths of a core", 125_000_000);

const memory = {
  memory_rss_bytes: bytes("Resident memory."),
  memory_usage_bytes: bytes("Memory in use, caches included."),
  memory_working_set_bytes: bytes("Memory that cannot be given back."),
  memory_page_faults: count("Page faults since the start, cumulative.", 120_000),
  memory_major_page_faults: count("Those that read from disk, cumulative."),
};
const network = {
  network_rx_bytes: bytes("Received since the snapshot before."),
  network_tx_bytes: bytes("Sent since the snapshot before."),
};

export const nodesRow = z
  .object({
    timestamp,
    node_name: textField("The node.", "node-1"),
    cpu_usage_nano_cores: cpu,
    ...memory,
    fs_used_bytes: bytes("Of the file system, in use."),
    fs_available_bytes: bytes("Of the file system, free for use."),
    fs_capacity_bytes: bytes("Of the file system, in all."),
    fs_inodes_free: count("Inodes free.", 3_000_000),
    fs_inodes_used: count("Inodes in use.", 200_000),
    fs_inodes: count("Inodes in all.", 3_200_000),
    ...network,
    phase: z.int32().meta({ description: "2 ready, 4 not ready, 0 unknown.", examples: [2] }),
  })
  .meta({
    id: "NodesRow",
    description: "A node at a snapshot. Figures that the cluster does not export are 0.",
  });

const container = z
  .object({
    name: textField("The container.", "web"),
    status: z.enum(containerStatuses).meta({ id: "ContainerStatus", description: "What a container does." }),
    exit_code: z.int32().meta({ description: "0 is success, and what runs still.", examples: [0] }),
    reason: textField('Why it is so; "" where it is not told.', "CrashLoopBackOff"),
  })
  .meta({ id: "Container", description: "A container of a pod." });

const pod = {
  timestamp,
  pod_name: textField("The pod.", "shop-web-7"),
  pod_namespace: textField("Its Kubernetes namespace.", "default"),
  node_name: textField('Its node; "" while it is not scheduled.', "node-1"),
  phase: z
    .enum(podPhases)
    .meta({ id: "PodPhase", description: "Where a pod is in its life.", examples: ["Running"] }),
  state: z.enum(podPhases).meta({
    id: "PodState",
    description: "Derived from a pod's phase and the status of its containers.",
    examples: ["Running"],
  }),
  containers: z.array(container).meta({ description: "Its containers." }),
  pod_restart_count: z.int32().meta({ description: "Restarts of all its containers.", examples: [0] }),
  pod_uptime_seconds: figure("How long it has run.", "s", 86_400),
};

export const podsRow = z
  .object({
    ...pod,
    cpu_usage_nano_cores: cpu,
    cpu_usage_core_nano_seconds: figure(
      "CPU used since the start, cumulative.",
      "ns of a core",
      987_654_321_000,
    ),
    ...memory,
    ephemeral_storage_used_bytes: bytes("Of its ephemeral storage, in use."),
    ephemeral_storage_capacity_bytes: bytes("Of its ephemeral storage, in all."),
    ...network,
    process_count: count("Processes.", 7),
  })
  .meta({
    id: "PodsRow",
    description: "A pod at a snapshot. Figures that the cluster does not export are 0.",
  });

export const podOverviewRow = z
  .object({
    ...pod,
    pod_uuid: textField("The pod's uid.", "0d3c9b3e-6f0c-4b0e-9c55-0a3f5d0f4f6b"),
    labels: z
      .record(z.string(), z.string())
      .meta({ description: "The pod's labels.", examples: [{ app: "shop" }] }),
    owner_references: z
      .array(
        z
          .object({
            name: textField("The owner.", "shop-web-6c9f"),
            kind: textField("What it is.", "ReplicaSet"),
            namespace: textField('Its namespace; "" in the whole cluster.', "default"),
          })
          .meta({ id: "OwnerReference", description: "What a pod belongs to." }),
      )
      .meta({ description: "Its direct owners." }),
  })
  .meta({ id: "PodOverviewRow", description: "A pod as it was at the last snapshot that has it." });
