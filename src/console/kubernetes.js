// The cluster as it was at the last snapshot of the range: its nodes, and its pods with what ails them.
import { podStates, printAddress, resolveRange, trackLastOpened } from "./address.js";
import { buildPost, isAborted, requestJson } from "./api.js";
import { createRangePicker, createSearchForm, createShareBar } from "./controls.js";
import {
  createElement,
  createField,
  createSelect,
  createTable,
  renderUntrusted,
  replaceChildren,
} from "./dom.js";
import { formatAge, formatBytes, formatCores, formatCount, formatLongTime } from "./format.js";
import { printTerm } from "./query.js";
import { createEmptyState, createFailureState, createLoadingState } from "./states.js";
import { createTree } from "./tree.js";

/** @typedef {import("./address.js").StateOf<"kubernetes">} State */
/**
 * @typedef {{
 *   readonly timestamp: string, readonly node_name: string, readonly phase: number,
 *   readonly cpu_usage_nano_cores: number, readonly memory_working_set_bytes: number,
 *   readonly fs_used_bytes: number, readonly fs_capacity_bytes: number,
 *   readonly network_rx_bytes: number, readonly network_tx_bytes: number,
 * }} NodeRow
 */
/**
 * @typedef {{
 *   readonly timestamp: string, readonly pod_name: string, readonly pod_namespace: string, readonly node_name: string,
 *   readonly state: string, readonly phase: string, readonly pod_restart_count: number, readonly pod_uptime_seconds: number,
 *   readonly labels: Readonly<Record<string, string>>,
 *   readonly owner_references: readonly { readonly kind: string, readonly name: string }[],
 *   readonly containers: readonly { readonly name: string, readonly status: string, readonly exit_code: number, readonly reason: string }[],
 * }} PodRow
 */
/**
 * The elements that the view writes, what it asks of the page, and what it shows.
 * @typedef {{
 *   readonly keep: import("./app.js").Shell<"kubernetes">["keep"], readonly query: HTMLInputElement,
 *   readonly only: HTMLSelectElement, readonly range: ReturnType<typeof createRangePicker>,
 *   readonly share: ReturnType<typeof createShareBar>, readonly told: HTMLElement,
 *   readonly nodes: HTMLElement, readonly pods: HTMLElement, state: State | undefined,
 * }} ClusterView
 */

const phases = { 2: "Ready", 4: "Not ready", 0: "Unknown" };
/** Where the layouts of log lines name the pod, as the API's own link from a pod to its lines reads them. */
const podPaths = [
  ["k8s.pod.name"],
  ["kubernetes", "pod", "name"],
  ["kubernetes", "pod_name"],
  ["resource", "k8s.pod.name"],
];
/** What ails comes first. */
const urgency = ["Failed", "Pending", "Unknown", "Running", "Succeeded"];
const selection = `pod_namespace
pod_name
state
node_name
pod_restart_count
pod_uptime_seconds
containers { name status exit_code reason }`;
/** How far back figures of a pod are looked for: the last snapshots, whatever the range. */
const figuresMillis = 5 * 60_000;

/** @param {import("./app.js").Shell<"kubernetes">} shell */
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
  const told = createElement("p", { class: "told", role: "status" });
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
    createElement("div", { class: "bar" }, told, share.root),
    nodes,
    pods,
  );

  /** @type {ClusterView} */
  const view = { keep, query, only, range, share, told, nodes, pods, state: undefined };
  return {
    root,
    /** @param {State} now @param {AbortSignal} signal */
    show: (now, signal) => showCluster(view, now, signal),
    focus: () => query.focus(),
  };
}

/** @param {ClusterView} view @param {State} now @param {AbortSignal} signal */
async function showCluster(view, now, signal) {
  const { query, only, range, share, told, nodes, pods } = view;
  view.state = now;
  query.value = now.query;
  only.value = now.state;
  range.write(now.range);
  replaceChildren(told);
  replaceChildren(pods);
  replaceChildren(nodes, createLoadingState("the cluster"));
  const bounds = resolveRange(now.range, Date.now());
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
  try {
    /** @type {[readonly NodeRow[], readonly PodRow[], readonly (PodRow & NodeRow)[]]} */
    const [nodeRows, podRows, figures] = await Promise.all([
      requestJson(buildPost("kubernetes/nodes", { ...common, from: recent }), signal),
      requestJson(buildPost("kubernetes/pods/overview", overview), signal),
      requestJson(buildPost("kubernetes/pods", { ...common, from: recent }), signal),
    ]);
    const shown = podRows.filter((pod) => now.state === "any" || pod.state === now.state);
    const failed = podRows.filter((pod) => pod.state === "Failed").length;
    replaceChildren(
      told,
      `${formatCount(shown.length, "pod")}${failed > 0 ? `, ${failed} failed` : ""}, as last seen up to ${formatLongTime(bounds.to)}`,
    );
    showNodes(view, nodeRows);
    showPods(view, shown, figures, now, signal);
  } catch (error) {
    if (!isAborted(error))
      replaceChildren(
        nodes,
        createFailureState(error, () => void showCluster(view, now, signal)),
      );
  }
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
          ["Node", "State", "CPU, cores", "Memory", "Disk", "Received", "Sent"],
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
 * @param {readonly (PodRow & NodeRow)[]} figures by time
 * @param {State} now
 * @param {AbortSignal} signal
 */
function showPods({ pods, keep }, rows, figures, now, signal) {
  const byPod = new Map(figures.map((row) => [formatPodKey(row), row]));
  const toggled = trackLastOpened(now.pod, signal, (pod) => keep({ ...now, pod }));
  const sorted = rows.toSorted(
    (a, b) =>
      urgency.indexOf(a.state) - urgency.indexOf(b.state) || (formatPodKey(a) < formatPodKey(b) ? -1 : 1),
  );
  replaceChildren(
    pods,
    createElement("h2", {}, "Pods"),
    sorted.length === 0
      ? createEmptyState("No pods", "No pod of this range passes the filters.")
      : createGrid(
          "Pods",
          ["Pod", "State", "Restarts", "Up for", "CPU, cores", "Memory", "Node"],
          sorted.map((pod) => {
            const figure = byPod.get(formatPodKey(pod));
            return [
              createPodName(pod, now, toggled),
              createBadge(pod.state),
              String(pod.pod_restart_count),
              formatAge(pod.pod_uptime_seconds),
              figure === undefined ? "–" : formatCores(figure.cpu_usage_nano_cores),
              figure === undefined ? "–" : formatBytes(figure.memory_working_set_bytes),
              renderUntrusted(pod.node_name || "–"),
            ];
          }),
        ),
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

/** @param {PodRow} pod */
function formatPodKey({ pod_namespace, pod_name }) {
  return `${pod_namespace}/${pod_name}`;
}

/**
 * The name, whose button shows and hides a row below with what else is known.
 * @param {PodRow} pod @param {State} now @param {(key: string, isOpen: boolean) => void} toggled
 */
function createPodName(pod, now, toggled) {
  const reasons = pod.containers
    .map(({ reason }) => reason)
    .filter((reason) => reason !== "" && reason !== "Completed");
  /** @type {HTMLElement | undefined} */
  let below;
  const name = createElement(
    "button",
    { type: "button", class: "expander", "aria-expanded": "false", "data-key": formatPodKey(pod) },
    renderUntrusted(pod.pod_name),
  );
  name.addEventListener("click", () => {
    const isOpen = below !== undefined;
    below?.remove();
    below = isOpen
      ? undefined
      : createElement(
          "tr",
          { class: "below" },
          createElement("td", { colspan: 7 }, createPodDetails(pod, now)),
        );
    if (below !== undefined) name.closest("tr")?.after(below);
    name.setAttribute("aria-expanded", String(!isOpen));
    toggled(formatPodKey(pod), !isOpen);
  });
  return createElement(
    "div",
    {},
    name,
    createElement("span", { class: "muted" }, renderUntrusted(pod.pod_namespace)),
    [...new Set(reasons)].map((reason) =>
      createElement("span", { class: "badge bad" }, renderUntrusted(reason)),
    ),
  );
}

/** @param {PodRow} pod @param {State} now */
function createPodDetails(pod, now) {
  const query = podPaths.map((path) => printTerm(path, "=", pod.pod_name)).join(" OR ");
  const href = printAddress("logs", { site: now.site, query, range: now.range });
  const known = {
    phase: pod.phase,
    seen: formatLongTime(pod.timestamp),
    owners: pod.owner_references.map(({ kind, name }) => `${kind} ${name}`),
    containers: Object.fromEntries(
      pod.containers.map(({ name, status, exit_code, reason }) => [
        name,
        { status, ...(reason === "" ? {} : { reason }), exit_code },
      ]),
    ),
    labels: pod.labels,
  };
  return createElement(
    "div",
    { class: "opened" },
    createElement("p", {}, createElement("a", { class: "button", href }, "Its log lines")),
    createTree(known, () => undefined),
  );
}

/** @param {string} state */
function createBadge(state) {
  const kind = {
    Failed: "bad",
    "Not ready": "bad",
    Pending: "warn",
    Unknown: "warn",
    Running: "good",
    Ready: "good",
  };
  const known = Object.hasOwn(kind, state) ? kind[/** @type {keyof typeof kind} */ (state)] : "";
  return createElement("span", { class: `badge ${known}` }, state);
}

/**
 * The first column names the row; figures stand in the middle.
 * @param {string} caption @param {readonly string[]} columns
 * @param {readonly (readonly (Node | string)[])[]} rows
 */
function createGrid(caption, columns, rows) {
  const figures = (/** @type {string} */ column) => ({
    class: /^(Pod|Node|State)$/.test(column) ? "" : "figure",
  });
  return createTable(
    caption,
    columns.map((name) => createElement("th", { scope: "col", ...figures(name) }, name)),
    rows.map((cells) =>
      cells.map((cell, at) =>
        at === 0
          ? createElement("th", { scope: "row" }, cell)
          : createElement("td", figures(columns[at] ?? ""), cell),
      ),
    ),
    { shape: "cluster" },
  );
}
