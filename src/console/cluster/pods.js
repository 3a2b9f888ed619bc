// The pods of the cluster as a table. A pod opens as what else is known of it, and leads to its log lines.
import { printAddress } from "../base/address.js";
import { createElement, renderUntrusted } from "../base/dom.js";
import { formatAge, formatBytes, formatCores, formatLongTime } from "../base/format.js";
import { createTree } from "../base/tree.js";
import { printTerm } from "../search/query.js";
import { createBadge, createGrid } from "./grid.js";

/** @typedef {import("../base/address.js").StateOf<"kubernetes">} State */
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
 * @typedef {PodRow & {
 *   readonly cpu_usage_nano_cores: number, readonly memory_working_set_bytes: number,
 * }} PodFigures
 */

/**
 * Where the layouts of log lines name the pod, as the API's own link from a pod to its lines reads them. A browser cannot load
 * the module of that; a test compares them.
 */
const podPaths = [
  ["k8s.pod.name"],
  ["k8s", "pod", "name"],
  ["kubernetes", "pod", "name"],
  ["kubernetes", "pod_name"],
  ["resource", "k8s.pod.name"],
  ["resource", "k8s", "pod", "name"],
  ["Resource", "k8s", "pod", "name"],
  ["resource", "attributes", "k8s.pod.name"],
  ["resource", "attributes.k8s@pod@name"],
];
/** The same for its namespace. */
const namespacePaths = [
  ["k8s.namespace.name"],
  ["k8s", "namespace", "name"],
  ["kubernetes", "namespace"],
  ["kubernetes", "namespace_name"],
  ["kubernetes", "pod_namespace"],
  ["resource", "k8s.namespace.name"],
  ["resource", "k8s", "namespace", "name"],
  ["Resource", "k8s", "namespace", "name"],
  ["resource", "attributes", "k8s.namespace.name"],
  ["resource", "attributes.k8s@namespace@name"],
];
/** What ails comes first. */
const urgency = ["Failed", "Pending", "Unknown", "Running", "Succeeded"];

/**
 * @param {readonly PodRow[]} rows
 * @param {readonly PodFigures[]} figures by time
 * @param {State} now
 * @param {(key: string, isOpen: boolean) => void} toggled
 */
export function createPodGrid(rows, figures, now, toggled) {
  const byPod = new Map(figures.map((row) => [formatPodKey(row), row]));
  const sorted = rows.toSorted(
    (a, b) =>
      urgency.indexOf(a.state) - urgency.indexOf(b.state) || (formatPodKey(a) < formatPodKey(b) ? -1 : 1),
  );
  return createGrid(
    "Pods",
    [
      { title: "Pod" },
      { title: "State" },
      { title: "Restarts", isFigure: true },
      { title: "Up for", isFigure: true },
      { title: "CPU, cores", isFigure: true },
      { title: "Memory", isFigure: true },
      { title: "Node" },
    ],
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
  );
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

/**
 * Lines that name the pod, without those that state another namespace. Every text contains the empty one, so `!:""` is where
 * nothing is stated.
 * @param {Pick<PodRow, "pod_name" | "pod_namespace">} pod
 */
export function printPodQuery({ pod_name, pod_namespace }) {
  const names = podPaths.map((path) => printTerm(path, "=", pod_name));
  const namespaces = namespacePaths.map((path) =>
    [printTerm(path, "=", pod_namespace), printTerm(path, "=", ""), printTerm(path, "!:", "")].join(" OR "),
  );
  return [names.join(" OR "), ...namespaces].map((terms) => `(${terms})`).join(" AND ");
}

/** @param {PodRow} pod @param {State} now */
function createPodDetails(pod, now) {
  const href = printAddress("logs", { site: now.site, query: printPodQuery(pod), range: now.range });
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
