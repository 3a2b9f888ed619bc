// Incidents, their samples and the markers of deploys, as existing clients ask for them.

export const incidentTypes = /* GraphQL */ `
  type AnomalyIncident implements IncidentInterface {
    alert(id: String!): Alert
    alertState: AlertStateEnum
    alerts(state: AlertStateEnum, limit: Int): [Alert]
    app: App
    assignees: [User]
    count: Int!
    createdAt: DateTime
    description: String
    digests: [String!]
    id: String!
    integrations: [Integration]
    lastOccurredAt: DateTime
    logbook: Logbook!
    notificationFrequency: IncidentNotificationFrequencyEnum
    number: Int!
    severity: IncidentSeverityEnum
    state: IncidentStateEnum
    tags: [KeyStringValue!]
    trigger: Trigger
    updatedAt: DateTime
  }
  type BacktraceLine {
    code: [Code]
    column: String
    error: Error
    line: String
    method: String
    original: String
    path: String
    type: String
    url: String
  }
  type Breadcrumb {
    action: String!
    category: String!
    message: String
    metadata: [KeyStringValue]
    time: DateTime
  }
  type Code {
    line: String
    source: String
  }
  type CustomMarker implements MarkerInterface {
    createdAt: DateTime!
    icon: String!
    id: String!
    message: String!
  }
  type DeployMarker implements MarkerInterface {
    createdAt: DateTime!
    exceptionCount: Int!
    exceptionRate: Float!
    gitCompareUrl: String
    id: String!
    lastOccurredAt: DateTime
    liveFor: Int!
    liveForInWords: String!
    namespace: String
    newExceptionIncidents(limit: Int): [ExceptionIncident]!
    previousDeploy: DeployMarker
    revision: String
    shortRevision: String
    user: String
  }
  type Error {
    class: String!
    message: String
  }
  type ErrorCause {
    firstLine: BacktraceLine
    message: String
    name: String!
  }
  type Event {
    digest: String
    incidents(start: DateTime, end: DateTime, timeframe: TimeframeEnum): [PerformanceIncident]
    name: String
    payload: String
    timeseries(start: DateTime, end: DateTime, timeframe: TimeframeEnum): AppTimeseries
    title: String
  }
  type Exception {
    backtrace: [BacktraceLine]
    message: String
    name: String
  }
  type ExceptionIncident implements IncidentInterface & TransactionIncidentInterface {
    actionNames: [String!]
    app: App
    assignees: [User]
    count: Int!
    createdAt: DateTime
    description: String
    digests: [String!]
    errorGroupingStrategy: IncidentErrorGroupingEnum!
    exceptionMessage: String
    exceptionName: String
    firstBacktraceLine: String
    firstMarker: DeployMarker
    hasSamplesInRetention: Boolean!
    id: String!
    integrations: [Integration]
    lastOccurredAt: DateTime
    lastSampleOccurredAt: DateTime
    logbook: Logbook!
    metadataDistributions: [MetadataDistributions]!
    namespace: String
    notificationFrequency: IncidentNotificationFrequencyEnum
    notificationThreshold: Int
    number: Int!
    perMarkerCount(marker: String): Int
    sample(id: String, timestamp: String, timerange: [DateTime]): ExceptionSample
    samples(start: DateTime, end: DateTime, limit: Int): [ExceptionSample]
    scopedCount: Int
    severity: IncidentSeverityEnum
    source: IncidentSourceEnum
    state: IncidentStateEnum
    updatedAt: DateTime
  }
  enum ExceptionIncidentQueryEnum {
    MOST_RECENT
    RECEIVING_DATA
    SPECIFIC_DEPLOY
    TIMEFRAME
  }
  type ExceptionSample implements SampleInterface {
    action: String
    app: App!
    appId: String!
    attributes: [KeyStringValue]
    breadcrumbs: [Breadcrumb]
    createdAt: DateTime
    customData: String
    duration: Float
    environment: [KeyStringValue]
    errorCauses: [ErrorCause]
    exception: Exception!
    firstMarker: DeployMarker
    id: String!
    incident: Incident
    incidentId: String!
    namespace: String
    originalId: String
    originallyRequested: SampleOriginalRequestEnum
    overview: [KeyStringValue!]
    params: String
    queueDuration: Int
    revision: String
    sessionData: String
    time: DateTime
    version: Int
  }
  union Incident = AnomalyIncident | ExceptionIncident | LogIncident | PerformanceIncident
  enum IncidentErrorGroupingEnum {
    TYPE_AND_ACTION
    TYPE_AND_RELEVANT_BACKTRACE_LINE
  }
  interface IncidentInterface {
    app: App
    assignees: [User]
    count: Int!
    createdAt: DateTime
    description: String
    digests: [String!]
    id: String!
    integrations: [Integration]
    lastOccurredAt: DateTime
    logbook: Logbook!
    notificationFrequency: IncidentNotificationFrequencyEnum
    number: Int!
    severity: IncidentSeverityEnum
    state: IncidentStateEnum
    updatedAt: DateTime
  }
  enum IncidentNotificationFrequencyEnum {
    ALWAYS
    NEVER
    FIRST_IN_DEPLOY
    FIRST_AFTER_CLOSE
    NTH_IN_HOUR
    NTH_IN_DAY
  }
  enum IncidentOrderEnum {
    ID
    LAST
  }
  enum IncidentSeverityEnum {
    UNTRIAGED
    CRITICAL
    HIGH
    LOW
    NONE
    INFORMATIONAL
  }
  enum IncidentSourceEnum {
    SAMPLE
    SPAN
  }
  enum IncidentStateEnum {
    OPEN
    CLOSED
    WIP
  }
  type LogIncident implements IncidentInterface {
    app: App
    assignees: [User]
    count: Int!
    createdAt: DateTime
    description: String
    digests: [String!]
    id: String!
    integrations: [Integration]
    lastOccurredAt: DateTime
    logLine: AppLogLine
    logbook: Logbook!
    notificationFrequency: IncidentNotificationFrequencyEnum
    number: Int!
    severity: IncidentSeverityEnum
    state: IncidentStateEnum
    trigger: LogTrigger!
    updatedAt: DateTime
  }
  interface MarkerInterface {
    createdAt: DateTime!
    id: String!
  }
  union MarkerUnion = CustomMarker | DeployMarker | NotificationMarker
  type NotificationMarker implements MarkerInterface {
    createdAt: DateTime!
    id: String!
    message: String!
  }
  type PaginatedAnomalyIncidents {
    rows: [AnomalyIncident!]!
    total: Int
  }
  type PaginatedExceptionIncidents {
    rows: [ExceptionIncident!]!
    total: Int
  }
  type PaginatedLogIncidents {
    rows: [LogIncident!]!
    total: Int
  }
  type PaginatedPerformanceIncidents {
    rows: [PerformanceIncident!]!
    total: Int
  }
  type PerformanceIncident implements IncidentInterface & TransactionIncidentInterface {
    actionNames: [String!]
    app: App
    assignees: [User]
    count: Int!
    createdAt: DateTime
    deployMarkers: [PerformanceMarker]!
    description: String
    digests: [String!]
    hasNPlusOne: Boolean
    hasSamplesInRetention: Boolean!
    id: String!
    integrations: [Integration]
    lastOccurredAt: DateTime
    lastSampleOccurredAt: DateTime
    logbook: Logbook!
    mean: Float!
    namespace: String
    notificationFrequency: IncidentNotificationFrequencyEnum
    notificationThreshold: Int
    number: Int!
    perMarkerCount(marker: String): Int
    perMarkerHasNPlusOne(marker: String): Boolean
    perMarkerMean(marker: String): Float
    perMarkerTotalDuration(marker: String): Float
    sample(id: String, timestamp: String, timerange: [DateTime]): PerformanceSample
    samples(start: DateTime, end: DateTime, limit: Int): [PerformanceSample]
    scopedCount: Int
    severity: IncidentSeverityEnum
    state: IncidentStateEnum
    totalDuration: Float!
    updatedAt: DateTime
  }
  type PerformanceMarker {
    count: Int!
    id: String!
    marker: DeployMarker!
    mean: Int!
  }
  type PerformanceSample implements SampleInterface {
    action: String
    app: App!
    appId: String!
    attributes: [KeyStringValue]
    createdAt: DateTime
    customData: String
    duration: Float!
    environment: [KeyStringValue]
    groupAllocations: [KeyFloatValue!]!
    groupDurations: [KeyFloatValue!]!
    hasNPlusOne: Boolean!
    id: String!
    incident: Incident
    incidentId: String!
    namespace: String
    originalId: String
    originallyRequested: SampleOriginalRequestEnum
    overview: [KeyStringValue!]
    params: String
    queueDuration: Int
    revision: String
    sessionData: String
    time: DateTime
    timeline: [TimelineEvent]!
    timelineTruncatedEvents: Int!
    version: Int
  }
  union Sample = ExceptionSample | PerformanceSample
  interface SampleInterface {
    action: String
    app: App!
    appId: String!
    attributes: [KeyStringValue]
    createdAt: DateTime
    customData: String
    duration: Float
    environment: [KeyStringValue]
    id: String!
    incident: Incident
    incidentId: String!
    namespace: String
    originalId: String
    originallyRequested: SampleOriginalRequestEnum
    overview: [KeyStringValue!]
    params: String
    queueDuration: Int
    revision: String
    sessionData: String
    time: DateTime
    version: Int
  }
  enum SampleOriginalRequestEnum {
    NONE
    ID
    TIMESTAMP
    TIMERANGE
  }
  enum SampleTypeEnum {
    EXCEPTION
    PERFORMANCE
  }
  type TimeDetectiveDataPoint {
    actionName: String
    exceptionName: String
    incident: Incident
    mean: Float
    namespace: String
    p90: Float
    throughput: Int
  }
  type TimelineEvent {
    action: String!
    allocationCount: Float
    childAllocationCount: Float
    childDuration: Float!
    count: Int!
    digest: String!
    duration: Float!
    end: Float!
    group: String
    level: Int!
    name: String
    payload: TimelineEventPayload
    time: Float!
    wrapping: Boolean!
  }
  type TimelineEventPayload {
    body: String
    name: String
  }
  interface TransactionIncidentInterface {
    actionNames: [String!]
    hasSamplesInRetention: Boolean!
    lastSampleOccurredAt: DateTime
    namespace: String
    perMarkerCount(marker: String): Int
    scopedCount: Int
  }
`;
