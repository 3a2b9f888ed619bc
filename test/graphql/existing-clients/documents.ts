// What public clients send, in our own words. Those of the npm server, the official command line and the Go client were written
// beside their sources. The others are written from what is known of their calls, so they may differ from what is sent.

export interface ClientDocument {
  readonly client: string;
  readonly name: string;
  readonly query: string;
  readonly variables?: Readonly<Record<string, unknown>>;
}

const app = "demo-shop";

/** The lists of the MCP server on npm ask for all apps. */
const ofAllApps = (fields: string) => `viewer { organizations { apps { id ${fields} } } }`;
const page = "state: $state, limit: $limit, offset: $offset, order: LAST";
const pageVariables = "$state: IncidentStateEnum, $limit: Int!, $offset: Int!";
const commonFields = "id number description state count createdAt lastOccurredAt updatedAt digests";
const exceptionFields = `${commonFields} namespace lastSampleOccurredAt hasSamplesInRetention firstBacktraceLine exceptionName exceptionMessage actionNames`;
const performanceFields = `${commonFields} severity actionNames namespace mean scopedCount totalDuration hasNPlusOne hasSamplesInRetention lastSampleOccurredAt`;
const pageArguments = { state: "OPEN", limit: 5, offset: 0 };

const incidentOfCli =
  "id number state severity description count createdAt lastOccurredAt updatedAt assignees { id name }";
const errorOfCli = `${incidentOfCli} exceptionName exceptionMessage actionNames namespace firstBacktraceLine`;
const actionOfCli = `${incidentOfCli} actionNames namespace mean totalDuration`;
const anomalyOfCli = `${incidentOfCli} alertState trigger { id name metricName kind } tags { key value }`;
const anyIncident = `__typename ... on ExceptionIncident { ${errorOfCli} } ... on PerformanceIncident { ${actionOfCli} } ... on AnomalyIncident { ${anomalyOfCli} } ... on LogIncident { ${incidentOfCli} }`;
const listVariables =
  "$appId: String!, $limit: Int, $offset: Int, $state: IncidentStateEnum, $order: IncidentOrderEnum, $namespaces: [String], $actionName: String";
const listArguments =
  "limit: $limit, offset: $offset, state: $state, order: $order, namespaces: $namespaces, actionName: $actionName";
const logView = "id name query columns lineHeight severities sourceIds";

const npm = "appsignal-mcp-server (npm)";
const cli = "the official command line";
const fork = "a fork of the command line";
const ruby = "a Ruby agent";
const python = "a Python connector";
const terraform = "a Terraform provider and a Go client";

export const documents: readonly ClientDocument[] = [
  { client: npm, name: "apps", query: `query GetApps { ${ofAllApps("name environment")} }` },
  {
    client: npm,
    name: "exception incidents",
    variables: pageArguments,
    query: `query GetExceptionIncidents(${pageVariables}) { ${ofAllApps(`paginatedExceptionIncidents(${page}) { total rows { ${exceptionFields} } }`)} }`,
  },
  {
    client: npm,
    name: "closed exception incidents",
    variables: { ...pageArguments, state: "CLOSED" },
    query: `query GetExceptionIncidents(${pageVariables}) { ${ofAllApps(`paginatedExceptionIncidents(${page}) { total rows { ${exceptionFields} } }`)} }`,
  },
  {
    client: npm,
    name: "exception incident",
    variables: { limit: 50, offset: 0 },
    query: `query GetExceptionIncident($limit: Int!, $offset: Int!) { ${ofAllApps(`exceptionIncidents(limit: $limit, offset: $offset, order: LAST, state: OPEN) { ${exceptionFields} }`)} }`,
  },
  {
    client: npm,
    name: "exception samples",
    variables: { limit: 1 },
    query: `query GetExceptionIncidentSamples($limit: Int!) { ${ofAllApps("exceptionIncidents { id number samples(limit: $limit) { id time action namespace revision version duration queueDuration createdAt params customData sessionData } }")} }`,
  },
  {
    client: npm,
    name: "performance incidents",
    variables: pageArguments,
    query: `query GetPerformanceIncidents(${pageVariables}) { ${ofAllApps(`paginatedPerformanceIncidents(${page}) { total rows { ${performanceFields} } }`)} }`,
  },
  {
    client: npm,
    name: "performance incident",
    variables: { limit: 50, offset: 0 },
    query: `query GetPerformanceIncident($limit: Int!, $offset: Int!) { ${ofAllApps(`performanceIncidents(limit: $limit, offset: $offset) { ${performanceFields} }`)} }`,
  },
  {
    client: npm,
    name: "performance sample",
    query: `query GetPerformanceIncidentSample { ${ofAllApps("performanceIncidents { id number sample { id time action duration queueDuration namespace revision version originalId originallyRequested hasNPlusOne timelineTruncatedEvents createdAt customData params sessionData } }")} }`,
  },
  {
    client: npm,
    name: "timeline",
    query: `query GetPerformanceIncidentSampleTimeline { ${ofAllApps("performanceIncidents { id number sample { id timeline { name action digest group level duration childDuration allocationCount childAllocationCount count time end wrapping payload { name body } } } }")} }`,
  },
  {
    client: npm,
    name: "samples of an action",
    query: `query GetPerformanceSamples($appId: String!, $actionName: String!, $limit: Int!) { app(id: $appId) { performanceIncidents(actionName: $actionName, limit: 1) { number actionNames mean samples(limit: $limit) { id time action duration queueDuration hasNPlusOne params overview { key value } groupDurations { key value } } } } }`,
    variables: { appId: app, actionName: "CheckoutController#create", limit: 3 },
  },
  {
    client: npm,
    name: "slow requests",
    query: `query GetSlowRequests($appId: String!, $incidentLimit: Int!, $samplesPerIncident: Int!) { app(id: $appId) { paginatedPerformanceIncidents(state: OPEN, limit: $incidentLimit, order: LAST, namespaces: ["web"]) { rows { number actionNames mean count hasNPlusOne namespace samples(limit: $samplesPerIncident) { id time action duration queueDuration hasNPlusOne params overview { key value } groupDurations { key value } } } } } }`,
    variables: { appId: app, incidentLimit: 5, samplesPerIncident: 3 },
  },
  {
    client: npm,
    name: "anomaly incidents",
    variables: pageArguments,
    query: `query GetAnomalyIncidents(${pageVariables}) { ${ofAllApps(`paginatedAnomalyIncidents(${page}) { total rows { ${commonFields} alertState trigger { id name description } tags { key value } } }`)} }`,
  },
  {
    client: npm,
    name: "log incidents",
    variables: pageArguments,
    query: `query GetLogIncidents(${pageVariables}) { ${ofAllApps(`paginatedLogIncidents(${page}) { total rows { ${commonFields} severity trigger { id name description query severities sourceIds } } }`)} }`,
  },
  {
    client: npm,
    name: "log lines",
    variables: { query: "", limit: 5, severities: ["ERROR"] },
    query: `query SearchLogs($query: String!, $limit: Int!, $severities: [SeverityEnum!]) { ${ofAllApps("logs { queryWindow lines(query: $query, limit: $limit, severities: $severities) { id timestamp message severity hostname group } }")} }`,
  },
  {
    client: npm,
    name: "deploy markers",
    variables: { appId: app, timeframe: "R7D", limit: 5 },
    query:
      "query GetDeployMarkers($appId: String!, $timeframe: TimeframeEnum!, $limit: Int!) { app(id: $appId) { deployMarkers(timeframe: $timeframe, limit: $limit) { id revision shortRevision createdAt user exceptionCount } } }",
  },
  {
    client: npm,
    name: "metrics",
    variables: { appId: app, timeframe: "R1H", limit: 30 },
    query:
      'query GetMetrics($appId: String!, $timeframe: TimeframeEnum!, $limit: Int!) { app(id: $appId) { metrics { list(timeframe: $timeframe, query: [{ name: "transaction_duration", fields: [{ field: MEAN, aggregate: AVG }, { field: COUNT, aggregate: SUM }, { field: P95, aggregate: AVG }], tags: [{ key: "namespace", value: "web" }] }], limit: $limit) { start end total rows { id name tags { key value } fields { key value } } } } } }',
  },
  {
    client: fork,
    name: "metric keys",
    variables: { appId: app },
    query:
      "query MetricKeys($appId: String!) { app(id: $appId) { metrics { keys(limit: 10) { digest name type fields tags { key value } } } } }",
  },
  {
    client: fork,
    name: "timeseries",
    variables: { appId: app, timeframe: "R1H" },
    query:
      'query GetTimeseries($appId: String!, $timeframe: TimeframeEnum!) { app(id: $appId) { metrics { timeseries(timeframe: $timeframe, query: [{ name: "transaction_duration", fields: [{ field: MEAN }], tags: [{ key: "namespace", value: "*" }] }]) { start end resolution keys { digest name type fields tags { key value } } points { timestamp values { key value } } } } } }',
  },
  {
    client: cli,
    name: "one incident by number",
    variables: { appId: app, incidentNumber: 7 },
    query: `query AppIncident($appId: String!, $incidentNumber: Int!) { app(id: $appId) { incident(incidentNumber: $incidentNumber) { ${anyIncident} } } }`,
  },
  {
    client: cli,
    name: "all incidents",
    variables: { appId: app, state: "OPEN", order: "LAST" },
    query: `query AppIncidents(${listVariables}) { app(id: $appId) { incidents(${listArguments}) { ${anyIncident} } } }`,
  },
  ...[
    ["exceptionIncidents", errorOfCli],
    ["performanceIncidents", actionOfCli],
  ].map(([field, fields]) => ({
    client: cli,
    name: `${field} by text`,
    variables: { appId: app, limit: 5, query: "a" },
    query: `query Incidents(${listVariables}, $query: String) { app(id: $appId) { ${field}(${listArguments}, query: $query) { __typename ${fields} } } }`,
  })),
  {
    client: cli,
    name: "anomalies",
    variables: { appId: app, limit: 5 },
    query: `query AppAnomalyIncidents($appId: String!, $limit: Int) { app(id: $appId) { anomalyIncidents(limit: $limit) { __typename ${anomalyOfCli} } } }`,
  },
  {
    client: cli,
    name: "triggers with tags",
    variables: { appId: app, tags: [{ key: "a", value: "b" }] },
    query:
      "query AppTriggers($appId: String!, $tags: [KeyStringValueInput!]) { app(id: $appId) { triggers(tags: $tags) { id name metricName kind } } }",
  },
  ...[
    ["", ""],
    [", $sampleId: String", "(id: $sampleId)"],
    [", $at: String", "(timestamp: $at)"],
  ].map(([declared, selected]) => ({
    client: cli,
    name: `a sample of an incident ${selected}`,
    variables: { appId: app, incidentNumber: 7, sampleId: "0-0", at: "2026-01-15T11:30:00Z" },
    query: `query IncidentSample($appId: String!, $incidentNumber: Int!${declared}) { app(id: $appId) { incident(incidentNumber: $incidentNumber) { __typename ... on PerformanceIncident { number sample${selected} { id time action } } ... on ExceptionIncident { number sample${selected} { id time action } } } } }`,
  })),
  {
    client: cli,
    name: "samples of an incident",
    variables: { appId: app, incidentNumber: 7, limit: 3 },
    query:
      "query IncidentSamples($appId: String!, $incidentNumber: Int!, $start: DateTime, $end: DateTime, $limit: Int) { app(id: $appId) { incident(incidentNumber: $incidentNumber) { __typename ... on PerformanceIncident { number samples(start: $start, end: $end, limit: $limit) { id } } ... on ExceptionIncident { number samples(start: $start, end: $end, limit: $limit) { id } } } } }",
  },
  {
    client: cli,
    name: "metric keys",
    variables: { appId: app, limit: 5 },
    query:
      "query MetricKeys($appId: String!, $name: String, $limit: Int) { app(id: $appId) { metrics { keys(name: $name, limit: $limit) { name type digest tags { key value } fields } } } }",
  },
  {
    client: cli,
    name: "errors and actions of a window",
    variables: {
      appId: app,
      namespaces: ["web"],
      start: "2026-01-15T11:30:00Z",
      end: "2026-01-15T11:40:00Z",
    },
    query:
      "query TimeDetective($appId: String!, $start: DateTime!, $end: DateTime!, $namespaces: [String!]!) { app(id: $appId) { timeDetectiveErrorDataPoints(start: $start, end: $end, namespaces: $namespaces) { namespace actionName exceptionName throughput } timeDetectivePerformanceDataPoints(start: $start, end: $end, namespaces: $namespaces) { namespace actionName throughput mean p90 } } }",
  },
  {
    client: cli,
    name: "resources",
    variables: { appId: app },
    query:
      "query AppResources($appId: String!) { app(id: $appId) { users { id name email } notifiers { id name icon } namespaces { id name } dashboards { id title description } deployMarkers(limit: 20) { id createdAt shortRevision revision gitCompareUrl user liveForInWords liveFor exceptionCount exceptionRate } } }",
  },
  {
    client: cli,
    name: "backtrace",
    variables: { appId: app, id: "0-0", revision: "1" },
    query:
      "query Backtrace($appId: String!, $id: String!, $revision: String!) { app(id: $appId) { backtrace(id: $id, revision: $revision) { original path line column method type url code { line source } error { class message } } } }",
  },
  {
    client: ruby,
    name: "exceptions of a timeframe",
    variables: { appId: app, timeframe: "R24H" },
    query:
      "query Exceptions($appId: String!, $timeframe: TimeframeEnum) { app(id: $appId) { paginatedExceptionIncidents(timeframe: $timeframe, limit: 10) { total rows { number exceptionName exceptionMessage count lastOccurredAt namespace actionNames state } } } }",
  },
  {
    client: python,
    name: "search",
    variables: { slug: "acme", appId: app },
    query:
      'query Search($slug: String!, $appId: String) { organization(slug: $slug) { search(appId: $appId, sampleType: EXCEPTION, query: "") { ... on ExceptionSample { id time action exception { name message } } } } }',
  },
  {
    client: terraform,
    name: "log views",
    variables: { appId: app, logViewId: "1" },
    query: `query GetAppLogView($appId: String!, $logViewId: String!) { app(id: $appId) { logViews { ${logView} } logView(id: $logViewId) { ${logView} } } }`,
  },
  {
    client: terraform,
    name: "a log source",
    variables: { appId: app, logSourceId: "app" },
    query:
      "query GetAppLogSource($appId: String!, $logSourceId: String!) { app(id: $appId) { logs { source(id: $logSourceId) { id name key type fmt } } } }",
  },
  {
    client: terraform,
    name: "log triggers",
    variables: { appId: app },
    query:
      "query GetAppLogTriggers($appId: String!) { app(id: $appId) { logs { triggers { id name query sourceIds actionType description notificationOptions notificationTriggerValue order severities notifiers { id name icon } } } } }",
  },
  {
    client: terraform,
    name: "notifiers",
    variables: { appId: app },
    query: "query GetAppNotifiers($appId: String!) { app(id: $appId) { notifiers { id name icon } } }",
  },
];

/** Calls of the same clients that cannot be answered, and why. */
export const unanswered: Readonly<Record<string, string>> = {
  logLineActions: "it is no field of the public schema: its arguments and its type are not known",
  "GET /api/{app}/graphs.json":
    "its figures are of a product that this stack does not have; metrics/timeseries has ours",
  "GET /api/{app}/event_names.json": "it is not documented in public",
};
