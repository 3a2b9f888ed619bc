// What the values of enumerations mean, by the `id` of their schema: descriptions for the GraphQL schema and the OpenAPI
// document. An enumeration may stand in requests and in answers, so the words stand here once.

export const enumWords: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  Aggregation: {
    sum: "All values added up.",
    avg: "The mean of all values.",
    min: "The least value.",
    max: "The greatest value.",
    first: "The value of the earliest bucket.",
    last: "The value of the latest bucket.",
  },
  ContainerStatus: {
    Running: "It runs.",
    Terminated: "It has ended; `exit_code` and `reason` say how.",
    Waiting: "It has not started yet; `reason` says why.",
    Unknown: "The cluster does not tell.",
  },
  EdgeType: {
    SYNC: "The caller waits for the answer.",
    ASYNC: "The caller goes on without an answer, as through a queue.",
  },
  MetricField: {
    gauge: "The value of a gauge.",
    counter: "How much a counter has grown.",
    mean: "The mean of the measured values.",
    count: "How many values were measured.",
    min: "The least measured value.",
    max: "The greatest measured value.",
    p_90: "90 % of the measured values are no greater.",
    p_95: "95 % of the measured values are no greater.",
  },
  MetricType: {
    gauge: "A value that goes up and down.",
    counter: "A count of events.",
    measurement: "The distribution of measured values, such as durations.",
  },
  Order: {
    ASC: "Oldest or least first.",
    DESC: "Newest or greatest first.",
  },
  PodPhase: {
    Running: "It is on a node, and at least one container runs, starts or restarts.",
    Succeeded: "All containers have ended with success.",
    Pending: "It waits for a node, or for its images.",
    Failed: "All containers have ended, at least one of them with a failure.",
    Unknown: "The cluster does not tell.",
  },
  PodState: {
    Running: "It runs, and none of its containers waits or has failed.",
    Succeeded: "It has ended with success.",
    Pending: "It, or one of its containers, has not started yet, for a reason that may pass.",
    Failed: "It, or one of its containers, has failed or cannot start.",
    Unknown: "The cluster does not tell.",
  },
  Resolution: {
    MINUTELY: "One minute.",
    FIVE_MINUTELY: "Five minutes.",
    TEN_MINUTELY: "Ten minutes.",
    FIFTEEN_MINUTELY: "Fifteen minutes.",
    HOURLY: "One hour.",
    DAILY: "One day, in UTC.",
  },
  Severity: {
    unknown: "No rule recognises how grave it is.",
    trace: "The finest detail.",
    debug: "Detail for developers.",
    info: "Normal operation.",
    notice: "Normal, but worth a look.",
    warn: "It may become a failure.",
    error: "Something has failed.",
    critical: "A part of the system has failed.",
    alert: "Somebody has to act at once.",
    fatal: "The program or the system cannot go on.",
  },
  SpanKind: {
    internal: "Work inside one program.",
    server: "It answers a call.",
    client: "It makes a call and waits for the answer.",
    producer: "It sends a message.",
    consumer: "It takes a message.",
  },
  StatusCode: {
    OK: "It was said to have succeeded.",
    ERROR: "It failed.",
    UNSET: "Nothing was said of it, which is the usual case of success.",
  },
};
