// What the tracing routes answer, for documentation. `row-writer.ts` and the operations print it.
import * as z from "zod";
import { spanKinds } from "../../core/rows.ts";
import { maxIncidentNumber } from "../../tracing/spans/digest.ts";
import { instantField, textField } from "../runtime/json-schema.ts";

const attributes = (description: string) =>
  z.record(z.string(), z.unknown()).meta({ description, examples: [{ "http.route": "/orders/{id}" }] });
const millis = (description: string) => z.number().meta({ description, "x-unit": "ms", examples: [515.58] });
const count = (description: string) =>
  z
    .int()
    .min(0)
    .meta({ description, examples: [42] });

const traceId = textField(
  "Identifier of the whole trace, 32 hex digits.",
  "5b8efff798038103d269b633813fc60c",
);
const spanId = (description: string) => textField(description, "eee19b7ec3c1b174");
const siteId = textField("The site that it belongs to.", "demo-shop");
const namespace = textField("The kind of request, such as web or background.", "web");
const action = textField("What the request did.", "OrdersController#show");
const revision = textField('The deploy that was running; "" where it is not told.', "4f1c2a9");
const spanKind = z
  .enum(spanKinds)
  .meta({ id: "SpanKind", description: "Which side of a call a span is.", examples: ["server"] });
const npo = z.boolean().meta({ description: "Whether an N+1 query was found.", examples: [false] });

export const traceSummary = z
  .object({
    trace_id: traceId,
    span_id: spanId("The request's own span; of an error, the span that has the exception."),
    site_id: siteId,
    namespace,
    action_name: action,
    revision,
    time: instantField("When the request ended."),
    duration: millis("How long the request took."),
    tags: attributes("The user's tags, taken from span attributes, without their prefix.").meta({
      examples: [{ region: "eu-west" }],
    }),
    has_npo: npo,
  })
  .meta({ id: "TraceSummary", description: "One request of a trace." });

export const span = z
  .object({
    start_time: instantField(
      "When it began, with all digits that the source has.",
      "2026-01-31T12:00:00.123456789Z",
    ),
    end_time: instantField("When it ended.", "2026-01-31T12:00:00.623456789Z"),
    duration: millis("How long it took."),
    trace_id: traceId,
    span_id: spanId("Identifier of the span, 16 hex digits."),
    parent_span_id: spanId('The span above it; "" on a root.'),
    digest: textField('Of the action that it belongs to; "" below a lost parent.', "d2ViOk9yZGVycw"),
    site_id: siteId,
    trace_state: textField('W3C trace state; "" where there is none.', "vendor=value"),
    service_name: textField("The service that recorded it.", "shop"),
    namespace: textField('The namespace of its request; "" below a lost parent.', "web"),
    revision,
    action_name: textField('The action of its request; "" below a lost parent.', "OrdersController#show"),
    span_name: textField("Its own name.", "SELECT orders"),
    span_kind: spanKind,
    scope_name: textField('The instrumentation that made it; "" where it is not told.', "opentelemetry.pg"),
    scope_version: textField('Its version; "" where it is not told.', "0.28.0"),
    status_code: z
      .enum(["OK", "ERROR", "UNSET"])
      .meta({ id: "StatusCode", description: "How a span ended.", examples: ["OK"] }),
    status_message: textField('Why it failed; "" where it is not told.', "connection reset"),
    resource_attributes: attributes("Of the process that recorded it. Keys are literal, dots included."),
    span_attributes: attributes("Of the span. Keys are literal, dots included."),
    "events.timestamp": z.array(z.string().meta({ format: "date-time" })).meta({
      description: "When each event happened; the three arrays go in step.",
      examples: [["2026-01-31T12:00:00.456Z"]],
    }),
    "events.name": z.array(z.string()).meta({
      description: "The name of each event; errors are named `exception`.",
      examples: [["exception"]],
    }),
    "events.attributes": z.array(z.record(z.string(), z.unknown())).meta({
      description: "The attributes of each event.",
      examples: [[{ "exception.type": "Timeout", "exception.message": "too slow" }]],
    }),
    "links.trace_id": z.array(z.string()).meta({
      description: "The trace that each link leads to; the four arrays go in step.",
      examples: [["5b8efff798038103d269b633813fc60c"]],
    }),
    "links.span_id": z.array(z.string()).meta({
      description: "The span that each link leads to.",
      examples: [["eee19b7ec3c1b174"]],
    }),
    "links.trace_state": z
      .array(z.string())
      .meta({ description: "The trace state of each link.", examples: [[""]] }),
    "links.attributes": z
      .array(z.record(z.string(), z.unknown()))
      .meta({ description: "The attributes of each link.", examples: [[{}]] }),
    subtrace_root: z.boolean().meta({
      description: "Whether it begins a separate service: its parent is not here or is another service's.",
      examples: [true],
    }),
  })
  .meta({ id: "Span", description: "One span of a trace." });

export const traceLocation = z
  .object({
    performance: z
      .array(
        z
          .object({ site_id: siteId, namespace, action_name: action })
          .meta({ id: "PerformanceLocation", description: "An action that a trace belongs to." }),
      )
      .meta({ description: "The actions that it belongs to, each once." }),
    errors: z
      .array(
        z
          .object({
            site_id: siteId,
            incident_number: z
              .int()
              .min(1)
              .max(maxIncidentNumber)
              .meta({ description: "A stable number of the site's error.", examples: [1_073_741_824] }),
            exception_name: textField("The exception's type.", "ActiveRecord::RecordNotFound"),
          })
          .meta({ id: "ErrorLocation", description: "An error that a trace belongs to." }),
      )
      .meta({ description: "The errors that it belongs to, each once." }),
  })
  .meta({ id: "TraceLocation", description: "Where a trace belongs." });

export const actionRow = z
  .object({
    namespace,
    action,
    digest: textField("Filters listings by this action.", "d2ViOk9yZGVycw"),
    mean: millis("Mean duration of the action's requests."),
    throughput: count("Requests in the range."),
    error_rate: z
      .number()
      .min(0)
      .max(100)
      .meta({
        description: "Requests with status ERROR, of all.",
        "x-unit": "%",
        examples: [1.5],
      }),
    has_npo: npo,
  })
  .meta({ id: "Action", description: "The requests of one action." });

const measured = {
  count: count("Calls."),
  error_count: count("Calls that failed."),
  mean: millis("Mean duration."),
  p_90: millis("90 % took no longer, within 2 %."),
  p_95: millis("95 % took no longer, within 2 %."),
};
const edge = z
  .object({ service: textField("The service at the other end.", "payments"), ...measured })
  .meta({ id: "Edge", description: "Calls between a site and another service, or between two of its own." });
const edges = <T extends z.ZodType>(row: T, description: string) =>
  z.array(row).meta({ description: `${description} Most calls first.` });

export const siteEdgeRows = z
  .object({
    upstream: edges(edge, "Services that call the site."),
    downstream: edges(edge, "Services that the site calls."),
    internal: edges(edge, "Calls with both ends in the site, by the service called."),
  })
  .meta({ id: "SiteEdges", description: "Who calls a site, and whom it calls." });

const actionEdge = z
  .object({
    service: textField("The service at the other end.", "payments"),
    namespace: textField("Of the request at the other end; null when it has no spans.", "web").nullable(),
    action: textField(
      "Of the request at the other end; null when it has no spans.",
      "POST /charge",
    ).nullable(),
    span_kind: spanKind.meta({ description: "The caller's kind." }),
    peer_span_kind: spanKind
      .nullable()
      .meta({ description: "The callee's kind; null when it has no spans." }),
    edge_type: z
      .enum(["SYNC", "ASYNC"])
      .meta({ id: "EdgeType", description: "Whether the caller waits.", examples: ["SYNC"] }),
    ...measured,
  })
  .meta({ id: "ActionEdge", description: "Calls between an action and a partner." });

export const actionEdgeRows = z
  .object({
    upstream: edges(actionEdge, "Who calls the action."),
    downstream: edges(actionEdge, "Whom the action calls."),
  })
  .meta({ id: "ActionEdges", description: "Who calls an action, and whom it calls." });

export const slowEvent = z
  .object({
    digest: textField("Asks for its actions.", "c2hvcDpjbGllbnQ"),
    count: count("Spans of the event."),
    mean: millis("Mean duration."),
    impact: z
      .number()
      .min(0)
      .max(100)
      .meta({
        description: "Share of the time of all events in the range, before filters.",
        "x-unit": "%",
        examples: [12.5],
      }),
    attributes: attributes("The values of the wanted attributes."),
    service: textField("The service that recorded it.", "shop"),
    span_kind: spanKind,
    span_name: textField("The spans' name.", "SELECT orders"),
    statement: textField(
      'The normalised statement; "" where there is none.',
      "SELECT * FROM orders WHERE id = ?",
    ),
  })
  .meta({ id: "SlowEvent", description: "Spans within requests that do the same." });

export const slowEventAction = z
  .object({
    action_name: action,
    namespace,
    count: count("Spans of the event within the action."),
    trace_id: traceId.meta({ description: "A trace that has one." }),
    start_time: instantField("When that one began."),
  })
  .meta({ id: "SlowEventAction", description: "Where a slow event happens." });

export const revisionStats = z
  .object({
    revision: textField("As asked.", "4f1c2a9"),
    first_seen: instantField("The end of its first request."),
    last_seen: instantField("The end of its last request."),
    throughput: count("Requests."),
    mean: millis("Mean duration."),
    error_rate: actionRow.shape.error_rate,
    p_90: measured.p_90,
    p_95: measured.p_95,
    namespaces: z
      .array(z.string())
      .meta({ description: "The namespaces of its requests.", examples: [["background", "web"]] }),
  })
  .meta({ id: "DeployStats", description: "The requests of one revision." });
