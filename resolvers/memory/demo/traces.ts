// The traces of the story's requests, as a function of seed and time: a web service that asks its databases, a second
// service of its own, other companies and queues; with errors, an N+1, and a blog that asks the shop.
import type { Attributes, SpanEvent, SpanKind } from "../../../src/core/rows.ts";
import { type Instant, type Millis, second, type TimeRange, toMillis } from "../../../src/core/time.ts";
import type { StoredSpan } from "../stores/span-store.ts";
import { createRandom, generateHex, pick, type Random } from "./seeded-random.ts";
import { type DemoRequest, demoSites, deriveRevision, generateRequest } from "./workload.ts";

/** `demo-shop-traces` and so on: one index for each site. */
export const traceIndices: readonly string[] = demoSites.map(({ name }) => formatIndexName(name));

function formatIndexName(site: string): string {
  return `demo-${site}-traces`;
}

/** Every span of a trace ends within this of its first second. */
export const settleTime: Millis = 5_000;

/**
 * The spans in one of `traceIndices` of the traces that begin in seconds which lie `settled` before those that end in
 * `(from, to]`. Adjoining windows make adjoining traces: none twice and none left out.
 */
export function generateSpans(seed: number, index: string, { from, to }: TimeRange): StoredSpan[] {
  const spans: StoredSpan[] = [];
  const last = Math.floor((toMillis(to) - settleTime) / second);
  for (let slot = Math.floor((toMillis(from) - settleTime) / second); slot < last; slot += 1) {
    for (const site of demoSites) {
      const request = generateRequest(seed, site, slot);
      if (request === undefined) continue;
      const made =
        site.name === "shop"
          ? generateShopTrace(seed, slot, request)
          : generateBlogTrace(seed, slot, request);
      for (const { site: home, span } of made) if (formatIndexName(home) === index) spans.push(span);
    }
  }
  return spans;
}

// ---- Making spans -------------------------------------------------------------------------------------------

interface SiteSpan {
  readonly site: string;
  readonly span: StoredSpan;
}
interface DemoSpan {
  readonly site: string;
  readonly service: string;
  readonly kind: SpanKind;
  readonly name: string;
  /** Milliseconds after the parent's start. */
  readonly after: number;
  readonly millis: number;
  readonly attributes?: Attributes;
  readonly failed?: boolean;
  readonly events?: readonly Omit<SpanEvent, "time">[];
}
type ParentSpan = Pick<StoredSpan, "trace_id" | "span_id" | "start">;

/** Writes down the spans of one trace. */
interface TraceRecorder {
  readonly random: Random;
  readonly made: readonly SiteSpan[];
  readonly add: (above: ParentSpan, step: DemoSpan) => StoredSpan;
  /** In a trace of its own that links to the span above. */
  readonly addLinked: (above: ParentSpan, step: DemoSpan) => StoredSpan;
}

function createTraceRecorder(
  seed: number,
  slot: number,
  { traceId, spanId, start }: DemoRequest,
): TraceRecorder {
  const random = createRandom(`${seed} trace ${traceId}`);
  const made: SiteSpan[] = [];
  const write = (
    ids: Pick<StoredSpan, "trace_id" | "parent_span_id" | "links">,
    begun: Instant,
    step: DemoSpan,
  ) => {
    const { site, service, kind, name, attributes = {}, failed = false, events = [] } = step;
    const revision = deriveRevision(service, slot);
    const span: StoredSpan = {
      ...ids,
      span_id: made.length === 0 ? spanId : generateHex(random, 16),
      start: begun,
      end: (begun + BigInt(Math.round(step.millis * 1e6))) as Instant,
      service_name: service,
      span_name: name,
      span_kind: kind,
      scope_name: "demo",
      scope_version: "1.0.0",
      revision,
      status_code: failed ? "ERROR" : kind === "internal" ? "UNSET" : "OK",
      status_message: failed ? "the request failed" : undefined,
      resource_attributes: describeResource(service, revision),
      span_attributes: attributes,
      events: events.map((event) => ({ ...event, time: (begun + 500_000n) as Instant })),
      entry: ids.parent_span_id === undefined || kind === "server" || kind === "consumer",
      count: 1,
      statement: readText(attributes, "db.query.text"),
      peer: kind === "client" || kind === "producer" ? derivePeer(attributes) : undefined,
      report: false,
    };
    made.push({ site, span });
    return span;
  };
  const begin = ({ start: above }: ParentSpan, { after }: DemoSpan) =>
    (above + BigInt(Math.round(after * 1e6)) + BigInt(Math.floor(random() * 1_000))) as Instant;
  return {
    random,
    made,
    add: (above, step) =>
      made.length === 0
        ? write({ trace_id: traceId, parent_span_id: undefined, links: [] }, start, step)
        : write(
            { trace_id: above.trace_id, parent_span_id: above.span_id, links: [] },
            begin(above, step),
            step,
          ),
    addLinked: ({ trace_id, span_id, start: above }, step) => {
      const links = [{ trace_id, span_id, trace_state: "", attributes: {} }];
      return write(
        { trace_id: generateHex(random, 32), parent_span_id: undefined, links },
        begin({ trace_id, span_id, start: above }, step),
        step,
      );
    },
  };
}

const resources = new Map<string, Attributes>();
/** One object for all spans of a service and revision. */
function describeResource(service: string, revision: string): Attributes {
  const key = `${service} ${revision}`;
  const known = resources.get(key) ?? {
    "service.name": service,
    "service.version": revision,
    "deployment.environment.name": "production",
    "telemetry.sdk.language": service === "shop-inventory" ? "go" : "ruby",
  };
  if (resources.size > 100) resources.clear();
  resources.set(key, known);
  return known;
}

function readText(attributes: Attributes, key: string): string | undefined {
  const value = attributes[key];
  return typeof value === "string" ? value : undefined;
}

function derivePeer(attributes: Attributes): string | undefined {
  const keys = ["server.address", "db.system.name", "messaging.destination.name"];
  return keys.map((key) => readText(attributes, key)).find((name) => name !== undefined);
}

function buildExceptionEvent(type: string, message: string): Omit<SpanEvent, "time"> {
  const attributes = {
    "exception.type": type,
    "exception.message": message,
    "exception.stacktrace": `${type}: ${message}\n  app/models/order.rb:88\n  app/controllers/base.rb:12`,
  };
  return { name: "exception", attributes };
}

// ---- The shop -----------------------------------------------------------------------------------------------

const noParent: ParentSpan = { trace_id: "", span_id: "", start: 0n as Instant };

function generateShopTrace(seed: number, slot: number, request: DemoRequest): readonly SiteSpan[] {
  const recorder = createTraceRecorder(seed, slot, request);
  serveShop(recorder, noParent, request, 0);
  return recorder.made;
}

/** One request of the shop's web service. */
function serveShop(
  recorder: TraceRecorder,
  above: ParentSpan,
  { action, failed }: Omit<DemoRequest, "traceId" | "spanId" | "start">,
  after: number,
): void {
  const { random, add } = recorder;
  const web = { site: "shop", service: "shop-web" } as const;
  const checkout = action.name === "CheckoutController#create";
  const millis = checkout ? 300 + random() * 900 : 40 + random() * 200 + (random() < 0.03 ? 1_500 : 0);
  const root = add(above, {
    ...web,
    kind: "server",
    name: `${action.method} ${action.path.split("?")[0]}`,
    after,
    millis,
    failed,
    attributes: {
      "http.request.method": action.method,
      "url.path": action.path,
      "http.response.status_code": failed ? 500 : 200,
      "appsignal.action_name": action.name,
      "appsignal.tag.region": pick(random, ["eu-west", "us-east"]),
      "appsignal.tag.plan": pick(random, ["free", "free", "pro"]),
      // Past what a double can hold.
      "appsignal.tag.user_id": 9_007_199_254_740_993n + BigInt(Math.floor(random() * 900)),
    },
  });
  const controller = add(root, {
    ...web,
    kind: "internal",
    name: action.name,
    after: 1,
    millis: millis * 0.9,
  });
  const ask = (statement: string, at: number, took: number): StoredSpan =>
    add(controller, {
      ...web,
      kind: "client",
      name: "query shop",
      after: at,
      millis: took,
      attributes: { "db.system.name": "postgresql", "db.namespace": "shop", "db.query.text": statement },
    });
  const user = Math.floor(random() * 900);
  ask(`SELECT * FROM users WHERE id = ${user}`, 2, 1 + random() * 8);
  add(controller, {
    ...web,
    kind: "client",
    name: "GET",
    after: 12,
    millis: 0.2 + random(),
    attributes: { "db.system.name": "redis", "db.query.text": `GET cart:${user}` },
  });
  if (action.name === "CartController#show") {
    // The N+1: a query for each line of the cart.
    const lines = Math.floor(random() * 10);
    for (let line = 0; line < lines; line += 1) {
      ask(`SELECT name, price FROM products WHERE id = ${line * 7 + 1}`, 15 + line, 0.5 + random());
    }
  }
  if (action.name === "SearchController#index") {
    ask(`SELECT id FROM products WHERE name ILIKE '%${user}%' ORDER BY price LIMIT 20`, 15, millis * 0.6);
  }
  if (checkout) addReservationAndPayment(recorder, controller, failed);
  else if (failed) {
    const message = "undefined method 'price' for nil";
    const events = [buildExceptionEvent("NoMethodError", message)];
    add(controller, { ...web, kind: "internal", name: "render", after: 20, millis: 5, failed: true, events });
  }
}

function addReservationAndPayment(recorder: TraceRecorder, controller: StoredSpan, failed: boolean): void {
  const { random, add, addLinked } = recorder;
  const web = { site: "shop", service: "shop-web" } as const;
  const took = 30 + random() * 80;
  const reserve = add(controller, {
    ...web,
    kind: "client",
    name: "POST",
    after: 15,
    millis: took,
    attributes: { "http.request.method": "POST", "server.address": "inventory.internal" },
  });
  const inventory = { site: "shop", service: "shop-inventory" } as const;
  const reservation = add(reserve, {
    ...inventory,
    kind: "server",
    name: "POST /reservations",
    after: 1,
    millis: took - 2,
    attributes: { "http.request.method": "POST", "http.response.status_code": 201 },
  });
  add(reservation, {
    ...inventory,
    kind: "client",
    name: "UPDATE stock",
    after: 2,
    millis: took * 0.7,
    attributes: {
      "db.system.name": "postgresql",
      "db.namespace": "inventory",
      "db.query.text": `UPDATE stock SET left = left - 1 WHERE sku = 'A-${Math.floor(random() * 99)}'`,
    },
  });
  const events = failed ? [buildExceptionEvent("PaymentError", "card declined")] : [];
  add(controller, {
    ...web,
    kind: "client",
    name: "POST",
    after: 120,
    millis: 100 + random() * 100,
    failed,
    events,
    attributes: { "http.request.method": "POST", "server.address": "api.payments.example" },
  });
  if (failed) return;
  const sent = add(controller, {
    ...web,
    kind: "producer",
    name: "mail send",
    after: 240,
    millis: 1 + random(),
    attributes: { "messaging.system": "redis", "messaging.destination.name": "mail" },
  });
  const worker = { site: "shop", service: "shop-worker" } as const;
  const broken = random() < 0.1;
  const job: DemoSpan = {
    ...worker,
    kind: "consumer",
    name: "mail process",
    after: 50 + random() * 1_500,
    millis: 20 + random() * 200,
    failed: broken,
    events: broken ? [buildExceptionEvent("Net::OpenTimeout", "smtp.example:25")] : [],
    attributes: { "appsignal.action_name": "SendMailJob#perform", "messaging.destination.name": "mail" },
  };
  const consumer = random() < 0.5 ? add(sent, job) : addLinked(sent, job);
  add(consumer, {
    ...worker,
    kind: "client",
    name: "SMTP",
    after: 2,
    millis: job.millis * 0.8,
    attributes: { "server.address": "smtp.example" },
  });
}

// ---- The blog -----------------------------------------------------------------------------------------------

/** Its feed asks the shop for what is new, which is a request of the other site in the same trace. */
function generateBlogTrace(seed: number, slot: number, request: DemoRequest): readonly SiteSpan[] {
  const recorder = createTraceRecorder(seed, slot, request);
  const { random, add, made } = recorder;
  const { action, failed } = request;
  const web = { site: "blog", service: "blog-web" } as const;
  const millis = 20 + random() * 120 + (action.name === "FeedsController#index" ? 300 : 0);
  const root = add(noParent, {
    ...web,
    kind: "server",
    name: `${action.method} ${action.path}`,
    after: 0,
    millis,
    failed,
    events: failed ? [buildExceptionEvent("ActiveRecord::RecordNotFound", "no such post")] : [],
    attributes: {
      "http.request.method": action.method,
      "url.path": action.path,
      "appsignal.action_name": action.name,
    },
  });
  const search = add(root, {
    ...web,
    kind: "client",
    name: "GET",
    after: 2,
    millis: 15,
    attributes: { "server.address": "search.internal" },
  });
  add(search, {
    site: "blog",
    service: "blog-search",
    kind: "server",
    name: "GET /related",
    after: 1,
    millis: 12,
  });
  if (action.name === "FeedsController#index") {
    const call = add(root, {
      ...web,
      kind: "client",
      name: "GET",
      after: 20,
      millis: 280,
      attributes: { "server.address": "shop.internal" },
    });
    const [, , product] = demoSites[0].actions;
    if (product !== undefined) serveShop(recorder, call, { action: product, failed: false }, 1);
  }
  return made;
}
