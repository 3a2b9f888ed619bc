// The views of the page, and what a view and the page have to do with each other.

/** @typedef {import("./base/address.js").ViewName} ViewName */
/** @typedef {import("./base/api.js").Site} Site */
/**
 * What a view may ask of the page: `openAddress` shows another state of it, as a step of the browser's history; `keep` only
 * writes into the address what is shown already. Either does nothing while the view is not the one that is shown.
 * @template {ViewName} V
 * @typedef {Readonly<Record<"go" | "keep", (state: import("./base/address.js").StateOf<V>) => void>>} Shell
 */
/**
 * `show` is called for every address; what an earlier call began is over when its signal is. A view that is read anew, or come
 * back to, shows at least the rows of its `place`, of which there were as many as `countRows` says.
 * @typedef {{
 *   readonly root: HTMLElement, readonly focus?: () => void, readonly countRows?: () => number,
 *   readonly show: (state: any, signal: AbortSignal, site: Site, place?: import("./places.js").Place) => unknown,
 * }} View
 */

/** Of the view that its maker makes; a view's modules are read when it is first opened. */
/** @type {Readonly<{ [V in ViewName]: { readonly title: string, readonly load: () => Promise<(shell: Shell<V>) => View> } }>} */
export const views = {
  logs: { title: "Logs", load: async () => (await import("./logs/logs.js")).createLogsView },
  traces: { title: "Traces", load: async () => (await import("./traces/traces.js")).createTracesView },
  trace: { title: "Trace", load: async () => (await import("./traces/trace.js")).createTraceView },
  metrics: { title: "Metrics", load: async () => (await import("./metrics/metrics.js")).createMetricsView },
  errors: { title: "Errors", load: async () => (await import("./tables/error-groups.js")).createErrorsView },
  actions: { title: "Actions", load: async () => (await import("./tables/actions.js")).createActionsView },
  slow: {
    title: "Slow events",
    load: async () => (await import("./tables/slow-events.js")).createSlowEventsView,
  },
  map: { title: "Map", load: async () => (await import("./map/service-map.js")).createServiceMapView },
  deploys: { title: "Deploys", load: async () => (await import("./tables/deploys.js")).createDeploysView },
  visuals: { title: "Visuals", load: async () => (await import("./metrics/visuals.js")).createVisualsView },
  checkins: {
    title: "Check-ins",
    load: async () => (await import("./tables/check-ins.js")).createCheckInsView,
  },
  kubernetes: {
    title: "Kubernetes",
    load: async () => (await import("./cluster/kubernetes.js")).createKubernetesView,
  },
};
