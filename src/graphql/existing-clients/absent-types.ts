// What existing clients may ask for and no site has here: check-ins, exports, status pages, visuals of dashboards and the like.
// Their fields are null or empty, so that a document with them is valid.

export const absentTypes = /* GraphQL */ `
  type BillingCycleUsage {
    apmLimit: Float
    apmUsage: Float
    daysLeft: Int
    logLimit: Float
    logUsage: Float
  }
  type CheckIn {
    actualDuration: Int
    actualEnd: DateTime
    actualStart: DateTime
    expectedDuration: Int
    expectedEnd: DateTime
    expectedStart: DateTime!
    id: String!
    state: CheckInStateEnum!
    updates: [CheckInUpdate!]
  }
  enum CheckInKindEnum {
    START
    FINISH
  }
  enum CheckInStateEnum {
    NEW
    STARTED
    FINISHED
    MISSED
    LATE
    UNEXPECTED
  }
  type CheckInTrigger {
    checkIn(id: String!): CheckIn
    checkIns(states: [CheckInStateEnum!], offset: Int, limit: Int): [CheckIn!]
    description: String
    id: String!
    identifier: String!
    kind: CheckInTriggerKindEnum!
    lastErrorAt: DateTime
    lastState: CheckInStateEnum!
    lastSuccessAt: DateTime
    lastUpdateAt: DateTime
    logbook: Logbook!
    notifiers: [Notifier!]
    syntax: String
    timezone: String!
    waitTimeMinutes: Int!
  }
  enum CheckInTriggerKindEnum {
    CRON
    HEARTBEAT
  }
  type CheckInUpdate {
    digest: String
    kind: CheckInKindEnum!
    timestamp: DateTime!
  }
  type CheckIns {
    trigger(id: String): CheckInTrigger
    triggers: [CheckInTrigger!]
  }
  type CsvExport {
    completedAt: DateTime
    createdAt: DateTime!
    errorMessage: String
    exportType: String!
    fileName: String
    fileSize: String
    fileUrl: String
    id: String!
    organization: Organization
    requestedBy: User
    rowCount: Int
    site: App
    status: CsvExportStateEnum!
  }
  enum CsvExportStateEnum {
    PENDING
    PROCESSING
    COMPLETED
    FAILED
  }
  type Export {
    compressed: Boolean!
    exportJobs(limit: Int): [ExportJob!]!
    id: String!
    lastRequestedAt: DateTime
    retryCount: Int
    s3AccessKey: String!
    s3Url: String!
    state: ExportStateEnum!
  }
  type ExportJob {
    compressed: Boolean!
    duration: Float
    filename: String!
    id: String!
    retryCount: Int!
    state: ExportJobStateEnum!
    timestampFrom: DateTime!
    timestampTo: DateTime!
    updates: [ExportJobUpdate!]!
    url: String!
  }
  enum ExportJobStateEnum {
    REQUESTED
    STARTED
    COMPLETED
    FAILED
  }
  type ExportJobUpdate {
    message: String
    state: ExportJobStateEnum!
    timestamp: DateTime!
  }
  enum ExportStateEnum {
    RUNNING
    RETRYING
    FAILED
  }
  enum GettingStartedItemStateEnum {
    COMPLETED
    SKIPPED
  }
  type HostedCollector {
    createdAt: DateTime!
    id: String!
    isDefault: Boolean!
    region: String!
    status: HostedCollectorStatusEnum!
    subdomain: String!
    updatedAt: DateTime!
    url: String!
  }
  enum HostedCollectorStatusEnum {
    unprovisioned
    provisioning
    provisioned
    deprovisioning
    deprovisioned
    failed
  }
  type Item {
    author: User
    createdAt: DateTime!
    id: String!
    name: String!
    state: GettingStartedItemStateEnum!
    updatedAt: DateTime!
  }
  type StatusPage {
    description: String
    forceSsl: Boolean!
    hasSsl: Boolean!
    hostname: String!
    id: String!
    state: StatusPageStateEnum!
    threshold: Int
    title: String!
    updates: [StatusPageUpdate!]
    uptimeMonitorIds: [String!]
    uptimeMonitors: [UptimeMonitor!]
  }
  enum StatusPageStateEnum {
    UP
    DOWN
  }
  type StatusPageUpdate {
    createdAt: DateTime!
    description: String!
    id: String!
    state: StatusPageUpdateStateEnum!
    title: String!
  }
  enum StatusPageUpdateStateEnum {
    INVESTIGATING
    IDENTIFIED
    RECOVERING
    RESOLVED
  }
  type VercelProject {
    integrationId: String!
    name: String!
    projectId: String!
  }
  union Visual = VisualNumber | VisualTimeseries
  enum VisualDisplayEnum {
    LINE
    AREA
    AREA_RELATIVE
  }
  interface VisualInterface {
    description: String
    format: String
    formatInput: String
    id: String!
    title: String!
  }
  type VisualNumber implements VisualInterface {
    description: String
    format: String
    formatInput: String
    id: String!
    metric: VisualNumberMetric
    title: String!
  }
  type VisualNumberMetric {
    aggregate: MetricAggregateEnum
    field: MetricFieldEnum
    name: String!
    tags: [KeyStringValue!]
  }
  type VisualTimeseries implements VisualInterface {
    description: String
    display: VisualDisplayEnum
    drawNullAsZero: Boolean
    format: String
    formatInput: String
    id: String!
    lineLabel: String
    metrics: [VisualTimeseriesMetric!]!
    minYAxis: Float
    title: String!
  }
  type VisualTimeseriesMetric {
    fields: [VisualTimeseriesMetricField!]
    name: String!
    tags: [KeyStringValue!]
  }
  type VisualTimeseriesMetricField {
    field: MetricFieldEnum
  }
`;
