// The cluster as it was at the last snapshot of the range: its nodes, and its pods with what ails them.
import { podStates, resolveRange, trackLastOpened } from "../base/address.js";
import { buildPost, readServerTime, requestJson } from "../base/api.js";
import { createRangePicker, createSearchForm, createShareBar } from "../base/controls.js";
import { createElement, createField, createSelect, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatBytes, formatCores, formatCount, formatLongTime } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState, showPartFailure } from "../base/states.js";
import { createBadge, createGrid } from "./grid.js";
import { createPodGrid } from "./pods.js";

/** @typedef {import("../base/address.js").StateOf<"kubernetes">} State */
/** @typedef {import("./pods.js").PodRow} PodRow */
/** @typedef {import("./pods.js").PodFigures} PodFigures */
/**
 * @typedef {{
 *   readonly timestamp: string, readonly node_name: string, readonly phase: number,
 *   readonly cpu_usage_nano_cores: number, readonly memory_working_set_bytes: number,
 *   readonly fs_used_bytes: number, readonly fs_capacity_bytes: number,
 *   readonly network_rx_bytes: number, readonly network_tx_bytes: number,
 * }} NodeRow
 */
/**
 * The elements that the view writes, what it asks of the page, and what it shows.
 * @typedef {{
 *   readonly keep: import("../views.js").Shell<"kubernetes">["keep"], readonly query: HTMLInputElement,
 *   readonly only: HTMLSelectElement, readonly range: ReturnType<typeof createRangePicker>,
 *   readonly share: ReturnType<typeof createShareBar>, readonly statusLine: HTMLElement,
 *   readonly nodes: HTMLElement, readonly pods: HTMLElement, state: State | undefined,
 * }} ClusterView
 */

const phases = { 2: "Ready", 4: "Not ready", 0: "Unknown" };
const selection = `pod_namespace
pod_name
state
node_name
pod_restart_count
pod_uptime_seconds
containers { name status exit_code reason }`;
/** How far back figures of a pod are looked for: the last snapshots, whatever the range. */
const figuresMillis = 5 * 60_000;

/** @param {import("../views.js").Shell<"kubernetes">} shell */
export function createKubernetesView({ go, keep }) {
  const change = (/** @type {Partial<State>} */ part) => {
    if (view.state !== undefined) go({ ...view.state, query: query.value, pod: "", ...part });
  };
  const query = createElement("input", {
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "pod, namespace, node, owner or label=value",
  });
  const only = createSelect(
    podStates.map((word) => [word, word === "any" ? "Any" : word]),
    (value) => change({ state: podStates.find((word) => word === value) ?? "any" }),
  );
  const range = createRangePicker((value) => change({ range: value }));
  const share = createShareBar();
  const statusLine = createElement("p", { class: "status-line", role: "status" });
  const nodes = createElement("section", { class: "section" });
  const pods = createElement("section", { class: "section" });
  const form = createSearchForm(
    () => change({}),
    createField("Pods", query, "wide"),
    createField("State", only, "short"),
    range.root,
  );
  const root = createElement(
    "div",
    {},
    form,
    createElement("div", { class: "bar" }, statusLine, share.root),
    nodes,
    pods,
  );

  /** @type {ClusterView} */
  const view = { keep, query, only, range, share, statusLine, nodes, pods, state: undefined };
  return {
    root,
    /** @param {State} now @param {AbortSignal} signal */
    show: (now, signal) => showCluster(view, now, signal),
    focus: () => query.focus(),
  };
}

/** @param {ClusterView} view @param {State} now @param {AbortSignal} signal */
async function showCluster(view, now, signal) {
  const { query, only, range, share, statusLine, nodes, pods } = view;
  view.state = now;
  query.value = now.query;
  only.value = now.state;
  range.write(now.range);
  replaceChildren(statusLine);
  replaceChildren(pods);
  nodes.hidden = false;
  replaceChildren(nodes, createLoadingState("the cluster"));
  const bounds = resolveRange(now.range, readServerTime());
  const common = { site_id: now.site, ...bounds };
  const overview = { ...common, query: now.query };
  share.write(buildPost("kubernetes/pods/overview", overview), {
    field: "kubernetes_pods_overview",
    arguments: overview,
    selection,
  });
  const recent = new Date(
    Math.max(Date.parse(bounds.from), Date.parse(bounds.to) - figuresMillis),
  ).toISOString();
  /** @type {readonly [Promise<readonly NodeRow[]>, Promise<readonly PodRow[]>, Promise<readonly PodFigures[]>]} */
  const asked = [
    requestJson(buildPost("kubernetes/nodes", { ...common, from: recent }), signal),
    requestJson(buildPost("kubernetes/pods/overview", overview), signal),
    requestJson(buildPost("kubernetes/pods", { ...common, from: recent }), signal),
  ];
  const [nodeAnswer, podAnswer, figureAnswer] = await Promise.allSettled(asked);
  if (signal.aborted) return;
  const retry = () => void showCluster(view, now, signal);
  if (nodeAnswer.status === "rejected" && podAnswer.status === "rejected")
    return replaceChildren(nodes, createFailureState(podAnswer.reason, retry));
  if (nodeAnswer.status === "fulfilled") showNodes(view, nodeAnswer.value);
  else showPartFailure(nodes, "The nodes are not shown.", nodeAnswer.reason, retry);
  if (podAnswer.status === "rejected")
    return replaceChildren(
      pods,
      createElement("h2", {}, "Pods"),
      createFailureState(podAnswer.reason, retry),
    );
  const shown = podAnswer.value.filter((pod) => now.state === "any" || pod.state === now.state);
  const failed = podAnswer.value.filter((pod) => pod.state === "Failed").length;
  replaceChildren(
    statusLine,
    `${formatCount(shown.length, "pod")}${failed > 0 ? `, ${failed} failed` : ""}, as last seen up to ${formatLongTime(bounds.to)}`,
  );
  showPods(view, shown, figureAnswer.status === "fulfilled" ? figureAnswer.value : [], now, signal);
  if (figureAnswer.status === "fulfilled" || shown.length === 0) return;
  const lacking = createElement("div");
  showPartFailure(lacking, "CPU and memory of the pods are not shown.", figureAnswer.reason, retry);
  pods.querySelector("h2")?.after(lacking);
}

/** @param {ClusterView} view @param {readonly NodeRow[]} rows by time */
function showNodes({ nodes }, rows) {
  const newest = [...new Map(rows.map((row) => [row.node_name, row])).values()];
  newest.sort((a, b) => (a.node_name < b.node_name ? -1 : 1));
  replaceChildren(
    nodes,
    createElement("h2", {}, "Nodes"),
    newest.length === 0
      ? createEmptyState("No nodes", "The last minutes of this range have no snapshot of one.")
      : createGrid(
          "Nodes",
          [
            { title: "Node" },
            { title: "State" },
            { title: "CPU, cores", isFigure: true },
            { title: "Memory", isFigure: true },
            { title: "Disk", isFigure: true },
            { title: "Received", isFigure: true },
            { title: "Sent", isFigure: true },
          ],
          newest.map((row) => [
            renderUntrusted(row.node_name),
            createBadge(phases[/** @type {0 | 2 | 4} */ (row.phase)] ?? "Unknown"),
            formatCores(row.cpu_usage_nano_cores),
            formatBytes(row.memory_working_set_bytes),
            formatDisk(row),
            formatBytes(row.network_rx_bytes),
            formatBytes(row.network_tx_bytes),
          ]),
        ),
  );
}

/**
 * @param {ClusterView} view
 * @param {readonly PodRow[]} rows
 * @param {readonly PodFigures[]} figures by time
 * @param {State} now
 * @param {AbortSignal} signal
 */
function showPods({ pods, keep }, rows, figures, now, signal) {
  const toggled = trackLastOpened(now.pod, signal, (pod) => keep({ ...now, pod }));
  replaceChildren(
    pods,
    createElement("h2", {}, "Pods"),
    rows.length === 0
      ? createEmptyState("No pods", "No pod of this range passes the filters.")
      : createPodGrid(rows, figures, now, toggled),
  );
  const opened = [...pods.querySelectorAll("button")].find((name) => name.dataset.key === now.pod);
  opened?.click();
}

/** @param {NodeRow} row */
function formatDisk({ fs_used_bytes: used, fs_capacity_bytes: capacity }) {
  if (capacity === 0) return "–";
  const part = Math.round((100 * used) / capacity);
  return `${part} % of ${formatBytes(capacity)}`;
}
