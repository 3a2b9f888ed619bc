// Apps, organizations and viewers, as existing clients ask for them. Words stand in `descriptions.ts`.

export const appTypes = /* GraphQL */ `
  type ActionLink {
    sourceAction: ActionLinkAction!
    sourceApp: App!
    targetAction: ActionLinkAction!
    targetApp: App!
  }
  type ActionLinkAction {
    id: String!
    name: String!
    namespace: String!
  }
  type App {
    actionLinks(start: DateTime, end: DateTime, timeframe: TimeframeEnum, sourceAppId: String!, targetAppId: String!): [ActionLink]
    alerts(start: DateTime, end: DateTime, limit: Int, offset: Int, state: AlertStateEnum): [Alert]
    anomalyIncidents(state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum): [AnomalyIncident]
    backtrace(id: String!, revision: String!): [BacktraceLine]
    checkIns: CheckIns
    createdAt: DateTime
    dashboard(id: String!): Dashboard
    dashboards: [Dashboard]
    deployMarkers(start: DateTime, end: DateTime, timeframe: TimeframeEnum, limit: Int, offset: Int, dummy: Boolean = true, revisions: [String], namespaces: [String]): [DeployMarker]
    environment: String!
    event(digest: String!): Event
    eventGroupList(start: DateTime, end: DateTime, timeframe: TimeframeEnum, groups: [String!]!): AggregationList
    exceptionIncidents(namespaces: [String], marker: String, query: String, state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum, actionName: String): [ExceptionIncident]
    frontendApiKey: String!
    gettingStartedItems: [Item]!
    id: String!
    incident(incidentNumber: Int!): Incident
    incidents(namespaces: [String], marker: String, state: IncidentStateEnum, actionName: String, limit: Int, offset: Int, order: IncidentOrderEnum): [Incident]
    links(start: DateTime, end: DateTime, timeframe: TimeframeEnum): [Link]
    logIncidents(state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum): [LogIncident]
    logView(id: String!): View
    logViews: [View]
    logs: Logs!
    marker(id: String!): MarkerUnion
    markers(start: DateTime, end: DateTime, limit: Int, offset: Int): [MarkerUnion]
    metrics: Metrics
    name: String!
    namespaces(namespaces: [String]): [Namespace]
    notifiers: [Notifier]
    organization: Organization
    paginatedAnomalyIncidents(state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum): PaginatedAnomalyIncidents
    paginatedExceptionIncidents(namespaces: [String], marker: String, query: String, state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum, actionName: String, exceptionQuery: ExceptionIncidentQueryEnum, start: DateTime, end: DateTime, timeframe: TimeframeEnum): PaginatedExceptionIncidents
    paginatedLogIncidents(state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum): PaginatedLogIncidents
    paginatedPerformanceIncidents(namespaces: [String], marker: String, query: String, state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum, actionName: String): PaginatedPerformanceIncidents
    performanceIncidents(namespaces: [String], marker: String, query: String, state: IncidentStateEnum, limit: Int, offset: Int, order: IncidentOrderEnum, actionName: String): [PerformanceIncident]
    platforms: [String!]
    pushApiKey: String!
    spans: Spans
    status: String!
    timeDetectiveErrorDataPoints(start: DateTime!, end: DateTime!, namespaces: [String]!): [TimeDetectiveDataPoint]
    timeDetectivePerformanceDataPoints(start: DateTime!, end: DateTime!, namespaces: [String]!): [TimeDetectiveDataPoint]
    trigger(id: String): Trigger
    triggers(tags: [KeyStringValueInput!]): [Trigger]
    updatedAt: DateTime
    uptimeMonitor(id: String): UptimeMonitor
    uptimeMonitorRegions: [UptimeMonitorRegion]
    uptimeMonitors: [UptimeMonitor]
    urlTemplates: [UrlTemplate]
    users: [User]
    viewerPinned: Boolean
    incidentByDigest(digest: String!): Incident
  }
  type KeyFloatValue {
    key: String!
    value: Float
  }
  type KeyStringValue {
    key: String!
    value: String
  }
  input KeyStringValueInput {
    key: String
    value: String
  }
  type Link {
    sourceApp: App!
    targetApp: App!
  }
  type MetadataDistributions {
    key: String!
    total: Int!
    unique: Int!
  }
  type Namespace {
    deployMarkers(limit: Int): [DeployMarker]
    id: String!
    name: String!
  }
  enum OrderEnum {
    DESC
    ASC
  }
  type Organization {
    apps: [App!]!
    billingCycleUsage: BillingCycleUsage
    csvExports(limit: Int, offset: Int): [CsvExport]
    daysLeftInTrial: Int
    heroku: Boolean!
    hostedCollector(id: String!): HostedCollector
    hostedCollectors: [HostedCollector]
    id: String!
    inTrial: Boolean!
    links(start: DateTime, end: DateTime, timeframe: TimeframeEnum): [Link]
    name: String!
    onFreePlan: Boolean!
    pushApiKey: String!
    search(appId: String, namespace: String, query: String, sampleType: SampleTypeEnum, timerange: [DateTime]): [Sample]
    slug: String!
    statusPage(id: String): StatusPage
    statusPageUpdate(statusPageId: String, id: String): StatusPageUpdate
    statusPages: [StatusPage]
    throughputLast30Days: Int!
    ttl: Int!
    users: [User]
  }
  scalar PreciseDateTime
  extend type Query {
    app(id: String!): App
    organization(slug: String!): Organization!
    timezones: [Timezone!]!
    viewer: Viewer!
  }
  type Spans {
    metadataDistribution(incidentDigests: [String!]!, metadataKey: String!, limit: Int): [KeyFloatValue]!
    metadataDistributions(incidentDigests: [String!]!): [MetadataDistributions]!
  }
  enum TimeframeEnum {
    R1H
    R4H
    R8H
    R12H
    R24H
    R48H
    R7D
    R30D
  }
  type Timezone {
    identifier: String!
    name: String!
    offset: String!
  }
  type UrlTemplate {
    label: String!
    line: String!
    tags: [String]
  }
  type User implements UserInterface {
    email: String!
    emailHash: String!
    gravatarEnabled: Boolean!
    hideGettingStarted: Boolean!
    id: String!
    initials: String!
    name: String!
    organizations: [Organization]!
  }
  interface UserInterface {
    email: String!
    emailHash: String!
    gravatarEnabled: Boolean!
    hideGettingStarted: Boolean!
    id: String!
    initials: String!
    name: String!
    organizations: [Organization]!
  }
  type Viewer implements UserInterface {
    assignedIncidents(appIds: [String!], state: [IncidentStateEnum!], severity: IncidentSeverityEnum, query: String, limit: Int, offset: Int, order: IncidentOrderEnum): [Incident]!
    chartColorPalette: String!
    chartLineThickness: Float!
    chartShowHorizontalLines: Boolean!
    chartShowMarkers: Boolean
    chartShowVerticalLines: Boolean!
    email: String!
    emailHash: String!
    gravatarEnabled: Boolean!
    hideGettingStarted: Boolean!
    id: String!
    incidents(appIds: [String!], state: [IncidentStateEnum!], severity: IncidentSeverityEnum, query: String, limit: Int, offset: Int, order: IncidentOrderEnum, assigneeIds: [String!]): [Incident]!
    initials: String!
    isExternallyControlled: Boolean!
    name: String!
    organizations: [Organization!]!
    seenTooltips: [String!]!
    token: String!
    usedFeatures: [String!]!
    apps: [App!]!
  }
`;
