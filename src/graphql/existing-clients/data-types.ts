// Log lines, metrics, and the alerts and dashboards that no site here has, as existing clients ask for them.

export const dataTypes = /* GraphQL */ `
  input AggregateField {
    field: MetricFieldEnum!
    aggregate: MetricAggregateEnum!
  }
  type AggregationList {
    end: DateTime!
    rows: [AggregationListRow!]
    start: DateTime!
    total: Int
  }
  type AggregationListRow {
    fields: [KeyFloatValue!]
    id: String!
    name: String!
    tags: [KeyStringValue!]
  }
  type Alert {
    closedAt: DateTime
    closedReason: String
    createdAt: DateTime
    firstNotifiedAt: DateTime
    id: String!
    lastProcessedAt: DateTime
    lastValue: Float!
    mean: Float!
    message: String
    metricDigest: String!
    openedAt: DateTime
    peakValue: Float!
    resolvedAt: DateTime
    state: AlertStateEnum!
    stateChanges: [AlertStateChange!]
    tags: [KeyStringValue!]
    timeframeEndAt: DateTime
    timeframeStartAt: DateTime
    trigger: Trigger!
    version: Int!
  }
  type AlertStateChange {
    state: AlertStateEnum!
    time: DateTime
    value: Float
  }
  enum AlertStateEnum {
    OPEN
    CLOSED
    WARMUP
    COOLDOWN
    UNTRACKED
    ARCHIVED
  }
  type BulkTimeseries {
    series: [AppSeries!]!
    values: [Values!]!
  }
  type Dashboard {
    createdAt: DateTime!
    description: String
    id: String!
    key: String
    source: DashboardSourceEnum!
    title: String!
    updatedAt: DateTime!
    visual(id: String!): Visual
    visuals: [Visual!]!
  }
  enum DashboardSourceEnum {
    USER
    AUTO
  }
  input Field {
    field: MetricFieldEnum!
  }
  type AppLogLine {
    attributes: [KeyStringValue!]
    group: String
    hostname: String!
    id: String!
    message: String!
    severity: SeverityEnum!
    source: Source
    timestamp: PreciseDateTime!
  }
  type LogTrigger {
    actionType: String
    description: String
    id: String!
    logView: View
    name: String!
    notificationOptions: IncidentNotificationFrequencyEnum
    notificationTriggerValue: Int
    notifiers: [Notifier!]
    order: Int
    previousTrigger: Trigger
    query: String
    severities: [String]!
    sourceIds: [String]!
    sources: [Source]!
    user: User
  }
  type Logs {
    lines(start: PreciseDateTime, end: PreciseDateTime, sourceIds: [String!], severities: [SeverityEnum!], query: String, limit: Int, order: OrderEnum): [AppLogLine!]
    metrics(start: PreciseDateTime, end: PreciseDateTime, sourceIds: [String!], severities: [SeverityEnum!], query: String, resolution: ResolutionEnum): BulkTimeseries
    queryWindow: Int!
    source(id: String): Source
    sources: [Source!]!
    triggers: [LogTrigger]!
    vercelProjects: [VercelProject]!
  }
  enum MetricAggregateEnum {
    MAX
    MIN
    AVG
    SUM
    FIRST
    LAST
  }
  input MetricAggregation {
    name: String!
    tags: [TagInput!]!
    fields: [AggregateField!]!
  }
  enum MetricFieldEnum {
    MEAN
    P90
    P95
    COUNT
    GAUGE
    COUNTER
  }
  type MetricKey {
    digest: String!
    fields: [MetricFieldEnum!]!
    name: String!
    tags: [KeyStringValue!]
    type: MetricTypeEnum!
  }
  input MetricTimeseries {
    name: String!
    tags: [TagInput!]
    fields: [Field!]!
  }
  enum MetricTypeEnum {
    GAUGE
    MEASUREMENT
    COUNTER
  }
  type Metrics {
    keys(start: DateTime, end: DateTime, timeframe: TimeframeEnum, name: String, tags: [TagInput!], limit: Int, offset: Int): [MetricKey!]
    list(start: DateTime, end: DateTime, timeframe: TimeframeEnum, query: [MetricAggregation]!, limit: Int, offset: Int): AggregationList
    timeseries(start: DateTime, end: DateTime, timeframe: TimeframeEnum, query: [MetricTimeseries]): AppTimeseries
  }
  type Notifier {
    icon: String!
    id: String!
    name: String!
  }
  type AppPoint {
    timestamp: Int!
    values: [KeyFloatValue!]
  }
  enum ResolutionEnum {
    MINUTELY
    HOURLY
    DAILY
  }
  type AppSeries {
    digest: String!
    name: String!
    tags: [KeyStringValue]!
    type: MetricTypeEnum!
  }
  enum SeverityEnum {
    UNKNOWN
    TRACE
    DEBUG
    INFO
    NOTICE
    WARN
    ERROR
    CRITICAL
    ALERT
    FATAL
  }
  type Source {
    canBeModified: Boolean!
    export: Export
    fmt: SourceFormatEnum!
    id: String!
    key: String!
    metrics(start: PreciseDateTime, end: PreciseDateTime, resolution: ResolutionEnum): BulkTimeseries
    name: String!
    parseSeverity: Boolean!
    type: String!
    usageBytesLast24h: Int!
  }
  enum SourceFormatEnum {
    PLAINTEXT
    LOGFMT
    JSON
    AUTODETECT
  }
  input TagInput {
    key: String!
    value: String!
  }
  enum ThresholdAlertSettingComparisonOperationEnum {
    LESS_THAN
    GREATER_THAN
    LESS_THAN_OR_EQUAL
    GREATER_THAN_OR_EQUAL
    EQUAL
    NOT_EQUAL
  }
  type ThresholdCondition {
    comparisonOperator: ThresholdAlertSettingComparisonOperationEnum!
    humanComparisonOperator: String!
    id: String!
    value: Float!
  }
  type AppTimeseries {
    end: DateTime!
    keys: [MetricKey!]
    points: [AppPoint!]
    resolution: ResolutionEnum
    start: DateTime!
  }
  type Trigger {
    cooldownDuration: Int!
    dashboardId: String
    description: String
    field: MetricFieldEnum!
    format: String
    formatInput: String
    id: String!
    kind: String!
    metricName: String!
    name: String!
    noMatchIsZero: Boolean!
    notifiers: [Notifier!]
    previousTrigger: Trigger
    tags: [KeyStringValue!]
    thresholdCondition: ThresholdCondition!
    user: User
    warmupDuration: Int!
  }
  type UptimeMonitor {
    alerts: [Alert]!
    checkBodyContent: String
    description: String
    headers: [KeyStringValue]
    id: String!
    name: String!
    notifierIds: [String]!
    notifiers: [Notifier]!
    regions: [UptimeMonitorRegionEnum!]
    statusPages: [StatusPage]!
    url: String!
    warmupDuration: Int!
  }
  type UptimeMonitorRegion {
    id: UptimeMonitorRegionEnum!
    name: String!
  }
  enum UptimeMonitorRegionEnum {
    EUROPE
    NORTH_AMERICA
    ASIA_PACIFIC
    SOUTH_AMERICA
  }
  type Values {
    values: [KeyFloatValue!]!
  }
  type View {
    columns: [String!]
    id: String!
    lineHeight: String!
    name: String!
    query: String!
    severities: [String!]!
    sourceIds: [String!]!
  }
`;
