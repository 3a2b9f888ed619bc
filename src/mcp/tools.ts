// The tools that agents call. A tool is an operation under the name that such clients know: which one it is, what of its
// arguments the operation does not know, and which part of the answer are its rows.
import type { Site } from "../access/sites.ts";
import type { JsonSchema } from "../operations/runtime/json-schema.ts";
import { createInvalidRequest, isObject, orders } from "../operations/runtime/request-body.ts";
import { isActionDigest, narrowToNamespaces } from "../operations/trace-filters.ts";
import type { Args, OwnArguments } from "./tool-arguments.ts";

/** Rows of an answer, and what else it holds. */
interface ToolAnswer {
  readonly rows: readonly unknown[];
  readonly fields?: Args;
}

/** Which operation answers a call. */
export interface ToolPlan {
  readonly operation: string;
  readonly request: Args;
  /** Of an operation that has pages of its own. Absent: all rows are computed, and cut here. */
  readonly pages?: PageOrder;
  /** Arguments of the tool that have no effect on this operation. */
  readonly unused?: readonly string[];
}

/** The `pagination` of a request, as far as it is the same for all pages. */
export interface PageOrder {
  readonly order: "ASC" | "DESC";
  /** The first cursor of a listing of requests: what it is ordered by. */
  readonly cursor?: "Time" | "Duration";
}

export interface Tool {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly example: Args;
  /** Those that may answer; none if the tool answers from the configuration, or never has rows. */
  readonly operations: readonly string[];
  /** Arguments that none of these operations has. */
  readonly extra?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  /** @throws {Unprocessable} */
  readonly plan?: (args: Args, own: OwnArguments, site: Site) => ToolPlan;
  readonly readAnswer?: (answer: unknown, own: OwnArguments) => ToolAnswer;
  /** Whether it takes its own arguments and none of its operations. */
  readonly hasOnlyOwnArguments?: boolean;
  /** Without an operation: what it answers of the sites that the token may see, or of the one that is named. */
  readonly list?: (sites: readonly Site[]) => readonly unknown[];
  /** Without an operation: whether one site is meant. */
  readonly isAboutSite?: boolean;
  /** Why there are no rows. */
  readonly note?: string;
}

const queryLanguage = `The query language:
- field=value, != (not equal), : (contains), !: (does not contain), >, >=, <, <= (numbers)
- fields: message, severity, hostname, group, or a path of json such as http.response.status_code
- severity is one of trace, debug, info, notice, warn, error, critical, alert, fatal, unknown
- a bare word is looked for in the message; "two words" in quotes is one value
- AND and OR in upper case; a space is AND; parentheses group
- comparisons are case-sensitive and exact; numbers compare as numbers with > and <
- a line without the field satisfies != and !: only
- a\\.b is the key "a.b", user\\ id the key "user id", and \\message the key "message" of json
- items.0.name is the first element; items.name is any element
- the empty query matches every line
- example: severity=error (hostname=web-1 OR message:timeout)`;

const text = (description: string): JsonSchema => ({ type: "string", description });

const toRows = (answer: unknown): ToolAnswer => ({ rows: Array.isArray(answer) ? answer : [answer] });

/** The array under a key are the rows, and all other members are told beside them. */
const readRowsAt =
  (key: string) =>
  (answer: unknown): ToolAnswer => {
    const { [key]: rows, ...fields } = isObject(answer) ? answer : {};
    if (!Array.isArray(rows)) throw new Error(`the answer has no rows at ${key}`);
    return { rows, fields };
  };

const planSite =
  (operation: string) =>
  (args: Args, _own: OwnArguments, { id }: Site): ToolPlan => ({
    operation,
    request: { ...args, site_id: id },
  });

function planListing(operation: string, args: Args, own: OwnArguments, site: Site): ToolPlan {
  const { namespaces = [], query = "", order = "DESC", longest_first: isByDuration = false } = own;
  const { query: _query, order: _order, longest_first: _longest, ...rest } = args;
  return {
    operation,
    request: { ...rest, site_ids: [site.id], query: narrowToNamespaces(query, namespaces) },
    pages: { order, cursor: isByDuration ? "Duration" : "Time" },
  };
}

const orderArgument: JsonSchema = {
  type: "string",
  enum: [...orders],
  description: "Oldest or newest first; the default is DESC.",
};
const longestArgument: JsonSchema = {
  type: "boolean",
  description: "By duration instead of time.",
};
const namespacesArgument: JsonSchema = {
  type: "array",
  items: { type: "string" },
  description: "Any of these namespaces, such as web or background.",
};

const logTools: readonly Tool[] = [
  {
    name: "get_log_lines",
    title: "Log lines",
    description: `Log lines of a site, newest first.\n${queryLanguage}`,
    example: { app_name: "demo-shop", query: "severity=error", per_page: 20 },
    operations: ["logs.lines"],
    extra: { order: orderArgument },
    plan: ({ order: _, ...args }, { order = "DESC" }, site) => ({
      operation: "logs.lines",
      request: completeLogs(args, site),
      pages: { order },
    }),
  },
  {
    name: "count_log_lines",
    title: "Counts of log lines",
    description:
      "How many log lines match, exactly: in all, and in buckets of time, a row each. With group_by the values of that field come before them, a row each, the largest count first. Use it instead of counting lines yourself. The query is that of get_log_lines.",
    example: { app_name: "demo-shop", query: "", group_by: "severity" },
    operations: ["logs.counts"],
    plan: (args, _own, site) => ({
      operation: "logs.counts",
      request: completeLogs(args, site),
    }),
    readAnswer: (answer) => {
      const { rows: buckets, fields } = readRowsAt("buckets")(answer);
      const { groups, ...others } = fields ?? {};
      return { rows: [...(Array.isArray(groups) ? groups : []), ...buckets], fields: others };
    },
  },
];

/** All sources of the site where none is named, and every line where there is no query. */
function completeLogs(args: Args, { id, logs }: Site): Args {
  const source_ids = args.source_ids ?? [...(logs?.sources.keys() ?? ["none"])];
  return { query: "", ...args, use_expressions: true, site_id: id, source_ids };
}

const traceTools: readonly Tool[] = [
  {
    name: "get_exception_incidents",
    title: "Errors",
    description:
      "Errors that requests ended in, each once, the newest first: exception, action, and when it was seen last. get_incident shows the newest trace of one by its number or digest.",
    example: { app_name: "demo-shop", namespaces: ["web"] },
    operations: ["tracing.traces_errors"],
    extra: {
      namespaces: namespacesArgument,
      action_name: text("Only errors of this action."),
      revision: text("Only errors of this revision."),
      query: text("A part of the name or the message, in any case."),
    },
    hasOnlyOwnArguments: true,
  },
  {
    name: "get_incident",
    title: "An exception with its trace",
    description:
      "Every span of a trace with an exception, the span of the exception first: by trace_id, or the newest of a number or digest. Of an action every span of its newest request.",
    example: { app_name: "demo-shop", trace_id: "5b8efff798038103d269b633813fc60c" },
    operations: ["tracing.trace_error"],
    extra: {
      digest: text("The digest of an error or an action."),
      number: { type: "integer", description: "The number of an incident, instead of its digest." },
    },
    plan: ({ digest: own, number: _, ...args }, { digest }, { id }) => {
      const digests = digest === undefined ? [args.digests ?? []].flat() : [digest];
      if (args.trace_id === undefined && digests.length === 0)
        throw createInvalidRequest([
          {
            path: "trace_id",
            message: "is required: a trace_id of get_exception_incidents, or a number or digest",
          },
        ]);
      // An action need not have errors.
      const isAction = digests.length > 0 && digests.every(isActionDigest);
      return {
        operation: isAction ? "tracing.trace_performance" : "tracing.trace_error",
        request: { ...args, ...(digest !== undefined && { digests }), site_ids: [id] },
        unused: args.trace_id === undefined && own === undefined ? [] : ["number"],
      };
    },
  },
  {
    name: "get_performance",
    title: "Actions with their figures",
    description:
      "One row for each action: throughput, mean duration in ms, error rate in percent, and whether it has an N+1 query.",
    example: { app_name: "demo-shop", namespaces: ["web"] },
    operations: ["tracing.actions"],
    plan: (args, { namespaces }, { id }) => ({
      operation: "tracing.actions",
      request: { ...args, site_id: id, ...(namespaces && { namespaces }) },
    }),
  },
  {
    name: "get_traces",
    title: "Requests, or one trace",
    description: "Requests, newest or longest first; with trace_id every span of that trace, the root first.",
    example: { app_name: "demo-shop", longest_first: true, per_page: 5 },
    operations: ["tracing.traces_performance", "tracing.trace"],
    extra: { namespaces: namespacesArgument, order: orderArgument, longest_first: longestArgument },
    plan: (args, own, site) =>
      args.trace_id === undefined
        ? planListing("tracing.traces_performance", args, own, site)
        : {
            operation: "tracing.trace",
            request: { trace_id: args.trace_id, site_ids: [site.id] },
            unused: ["namespaces", "order", "longest_first"],
          },
  },
  {
    name: "get_slow_events",
    title: "Where the time of requests goes",
    description:
      "Spans within requests, grouped by service, kind, name and statement, the greatest share of the time first.",
    example: { app_name: "demo-shop", limit: 10 },
    operations: ["tracing.slow_events"],
    plan: planSite("tracing.slow_events"),
  },
  {
    name: "get_service_map",
    title: "Who calls whom",
    description:
      "The edges of the site: services that call it (direction upstream), that it calls (downstream), and within it (internal), with counts, errors and durations in ms.",
    example: { app_name: "demo-shop" },
    operations: ["tracing.site_edges"],
    plan: planSite("tracing.site_edges"),
    readAnswer: (answer) => ({
      rows: Object.entries(isObject(answer) ? answer : {}).flatMap(([direction, edges]) =>
        (Array.isArray(edges) ? edges : []).map((edge: object) => ({ direction, ...edge })),
      ),
    }),
  },
  {
    name: "get_deploy_stats",
    title: "The requests of a deploy",
    description: "When a revision was first and last seen, and the figures of its requests.",
    example: { app_name: "demo-shop", revision: "4f1c2a9" },
    operations: ["deploys.stats"],
    required: ["revision"],
    plan: planSite("deploys.stats"),
  },
];

const metricTools: readonly Tool[] = [
  {
    name: "discover_metrics",
    title: "Find metrics",
    description: "The names of metrics that contain a text, in any case.",
    example: { app_name: "demo-shop", query: "cpu" },
    operations: ["metrics.names"],
    extra: { query: text("A part of the name; absent for all.") },
    plan: planSite("metrics.names"),
    readAnswer: (answer, { query = "" }) => ({
      rows: toRows(answer).rows.filter((name) => String(name).toLowerCase().includes(query.toLowerCase())),
    }),
  },
  {
    name: "get_metric_names",
    title: "Names of metrics",
    description: "The names of all metrics of the site.",
    example: { app_name: "demo-shop" },
    operations: ["metrics.names"],
    plan: planSite("metrics.names"),
  },
  {
    name: "get_metric_tags",
    title: "Type and tags of a metric",
    description: "The type of a metric, which decides its fields, and the lists of tag keys that it has.",
    example: { app_name: "demo-shop", metric_name: "cpu" },
    operations: ["metrics.type_and_tags"],
    required: ["metric_name"],
    plan: planSite("metrics.type_and_tags"),
  },
  {
    name: "get_metrics_timeseries",
    title: "Metrics over time",
    description: "Series of metrics, a row each with its points. A tag with * means each value of it.",
    example: { app_name: "demo-shop", select: [{ name: "cpu", field: "gauge", tags: { hostname: "*" } }] },
    operations: ["metrics.timeseries"],
    required: ["select"],
    plan: planSite("metrics.timeseries"),
    readAnswer: readRowsAt("series"),
  },
  {
    name: "get_metrics_list",
    title: "Metrics as a table",
    description: "Values of metrics, a row for each group, the largest of the first selector first.",
    example: {
      app_name: "demo-shop",
      select: [{ id: "cpu", name: "cpu", field: "mean", tags: { hostname: "*" } }],
      group_by: [{ Tag: "hostname" }],
    },
    operations: ["metrics.list"],
    required: ["select"],
    plan: (args, _own, { id }) => ({
      operation: "metrics.list",
      request: { group_by: [], ...args, site_id: id },
    }),
    readAnswer: readRowsAt("rows"),
  },
];

const kubernetesTools: readonly Tool[] = [
  {
    name: "get_kubernetes_pods",
    title: "Pods",
    description:
      "Pods that were there in the range, each as it was at its end; with snapshots a row for each pod and minute.",
    example: { app_name: "demo-shop", query: "web" },
    operations: ["kubernetes.pods.overview", "kubernetes.pods"],
    extra: {
      namespaces: {
        type: "array",
        items: { type: "string" },
        description: "Any of these Kubernetes namespaces.",
      },
      snapshots: { type: "boolean", description: "A row for each pod at each snapshot, with figures." },
    },
    plan: ({ snapshots: _, ...args }, { namespaces, snapshots: isEach = false }, { id }) => ({
      operation: isEach ? "kubernetes.pods" : "kubernetes.pods.overview",
      request: { ...args, site_id: id, ...(namespaces && { namespaces }) },
    }),
  },
  {
    name: "get_kubernetes_nodes",
    title: "Nodes",
    description: "A row for each node at each snapshot, with its figures.",
    example: { app_name: "demo-shop" },
    operations: ["kubernetes.nodes"],
    plan: planSite("kubernetes.nodes"),
  },
];

const siteTools: readonly Tool[] = [
  {
    name: "get_applications",
    title: "Sites",
    description: "The sites that the token may see, with their environments and log sources.",
    example: {},
    operations: [],
    list: (sites) => sites.map(describeSite),
  },
  {
    name: "get_app_resources",
    title: "What a site has",
    description: "The log sources of a site, and which kinds of data it has.",
    example: { app_name: "demo-shop" },
    operations: [],
    isAboutSite: true,
    list: (sites) => sites.map(describeSite),
  },
  {
    name: "get_anomaly_incidents",
    title: "Anomalies",
    description: "Always empty: this stack detects no anomalies.",
    example: { app_name: "demo-shop" },
    operations: [],
    isAboutSite: true,
    note: "This stack detects no anomalies, so there never are any. Use get_metrics_timeseries to look at a metric.",
  },
  {
    name: "get_triggers",
    title: "Triggers",
    description: "Always empty: this stack has no triggers.",
    example: { app_name: "demo-shop" },
    operations: [],
    isAboutSite: true,
    note: "This stack has no triggers. Alerts, where there are any, are those of Prometheus.",
  },
];

function describeSite({ id, name = id, environment, logs, traces, metrics, kubernetes }: Site) {
  const parts = { logs, traces, metrics, kubernetes };
  return {
    app_name: name,
    app_environment: environment ?? null,
    site_id: id,
    log_sources: [...(logs?.sources.keys() ?? [])],
    has: Object.entries(parts).flatMap(([part, value]) => (value === undefined ? [] : [part])),
  };
}

export const explainTool = "explain";

/** All but `explain`, which is about the others. */
export const tools: readonly Tool[] = [
  ...siteTools,
  ...logTools,
  ...traceTools,
  ...metricTools,
  ...kubernetesTools,
];

/** Some clients put this before the names of tools. */
const prefix = /^appsignal_/;

export function findTool(name: string): Tool | undefined {
  return tools.find((tool) => tool.name === name.replace(prefix, ""));
}

export function isExplainTool(name: string): boolean {
  return name.replace(prefix, "") === explainTool;
}
