// The neutral model of traces, as an application makes them. Each subject of the span suites writes it in the form of its layout.
// `toSpan` is what a store must read, by the rules of the contract and not by the code under test.
import type { Attributes, Span, SpanEvent, SpanKind, SpanLink, StatusCode } from "#src/core/rows.ts";
import { floorToMilli, fromMillis, type Instant } from "#src/core/time.ts";
import type { Budget, SpanLookup, SpanReader, SpanSelection, SpanSource } from "#src/store/spans.ts";

export type SiteName = "shop" | "stock" | "blog";

export interface ModelSpan {
  readonly site: SiteName;
  readonly trace: string;
  readonly id: string;
  readonly parent?: string;
  readonly service: string;
  readonly name: string;
  readonly kind: SpanKind;
  readonly start: Instant;
  readonly end: Instant;
  readonly status: StatusCode;
  readonly message?: string;
  readonly revision?: string;
  readonly state?: string;
  readonly scope?: { readonly name: string; readonly version: string };
  /** With namespace, action, tags, statement and peer, by the names of OpenTelemetry and the contract. */
  readonly attributes: Attributes;
  /** Without `service.name` and `service.version`, which are `service` and `revision`. */
  readonly resource: Attributes;
  readonly events: readonly SpanEvent[];
  readonly links: readonly SpanLink[];
  /** More than 1 for a compressed span. */
  readonly count: number;
}

/** Removes what a layout may be unable to carry: the suite then expects the span without it. */
export const removeParts = {
  /** Times below the microsecond. */
  nanoseconds: (span: ModelSpan): ModelSpan => ({
    ...span,
    start: cutToMicros(span.start),
    end: cutToMicros(span.end),
    events: span.events.map((event) => ({ ...event, time: cutToMicros(event.time) })),
  }),
  /** Times below the millisecond; lengths are whole. */
  submillis: (span: ModelSpan): ModelSpan => ({
    ...span,
    start: floorToMilli(span.start),
    end: (floorToMilli(span.start) + (span.end - span.start)) as Instant,
    events: span.events.map((event) => ({ ...event, time: floorToMilli(event.time) })),
  }),
  state: ({ state: _, ...span }: ModelSpan): ModelSpan => span,
  scope: ({ scope: _, ...span }: ModelSpan): ModelSpan => span,
  message: ({ message: _, ...span }: ModelSpan): ModelSpan => span,
  linkAttributes: (span: ModelSpan): ModelSpan => ({
    ...span,
    links: span.links.map((link) => ({ ...link, attributes: {} })),
  }),
  linkState: (span: ModelSpan): ModelSpan => ({
    ...span,
    links: span.links.map((link) => ({ ...link, trace_state: "" })),
  }),
  /** Events other than exceptions. */
  events: (span: ModelSpan): ModelSpan => ({
    ...span,
    events: span.events.filter(({ name }) => name === "exception"),
  }),
  count: (span: ModelSpan): ModelSpan => ({ ...span, count: 1 }),
  /** That a span has no status. */
  unset: (span: ModelSpan): ModelSpan => ({
    ...span,
    status: span.status === "UNSET" ? "OK" : span.status,
  }),
  /** Attributes that are true or false. */
  booleans: (span: ModelSpan): ModelSpan => ({
    ...span,
    attributes: Object.fromEntries(
      Object.entries(span.attributes).map(([key, value]) => [
        key,
        typeof value === "boolean" ? String(value) : value,
      ]),
    ),
  }),
  /** Attributes other than texts. */
  types: (span: ModelSpan): ModelSpan => ({
    ...span,
    attributes: Object.fromEntries(
      Object.entries(span.attributes).map(([key, value]) => [
        key,
        typeof value === "object" ? value : String(value),
      ]),
    ),
  }),
} as const;
export type ModelPart = keyof typeof removeParts;

function cutToMicros(time: Instant): Instant {
  return (time - (time % 1_000n)) as Instant;
}

const peers = [
  "service.peer.name",
  "peer.service",
  "server.address",
  "net.peer.name",
  "db.system.name",
  "db.system",
  "db.namespace",
  "db.name",
  "messaging.destination.name",
  "messaging.destination",
];

/** The span that a store must read. */
export function toSpan(model: ModelSpan): Span {
  const { attributes, parent, kind, revision } = model;
  const text = (key: string): string | undefined => {
    const value = attributes[key];
    return typeof value === "string" && value !== "" ? value : undefined;
  };
  const calls = kind === "client" || kind === "producer";
  return {
    site_id: model.site,
    trace_id: model.trace,
    span_id: model.id,
    parent_span_id: parent,
    trace_state: model.state,
    start: model.start,
    end: model.end,
    service_name: model.service,
    span_name: model.name,
    span_kind: kind,
    scope_name: model.scope?.name,
    scope_version: model.scope?.version,
    revision,
    status_code: model.status,
    status_message: model.message,
    resource_attributes: {
      ...model.resource,
      "service.name": model.service,
      ...(revision === undefined ? {} : { "service.version": revision }),
    },
    span_attributes: attributes,
    events: model.events,
    links: model.links,
    entry: parent === undefined || kind === "server" || kind === "consumer",
    namespace: text("appsignal.namespace"),
    action: text("appsignal.action_name"),
    tags: Object.fromEntries(
      Object.entries(attributes).flatMap(([key, value]) =>
        key.startsWith("appsignal.tag.") ? [[key.slice("appsignal.tag.".length), value]] : [],
      ),
    ),
    count: model.count,
    statement: text("db.query.text"),
    peer: calls ? peers.map(text).find((name) => name !== undefined) : undefined,
    report: false,
  };
}

/** `scan` and `find` over an array of spans, in their simplest form. */
export function createArrayReader(spans: readonly Span[]): SpanReader {
  async function* select(
    sources: readonly SpanSource[],
    budget: Budget,
    accepts: (span: Span) => boolean,
  ): AsyncGenerator<readonly Span[]> {
    const found = spans.filter((span) => sources.some(({ site }) => site === span.site_id) && accepts(span));
    budget.spend(found.length);
    if (found.length > 0) yield found;
  }
  return {
    scan: ({ sources, range, select: selection, budget }) =>
      select(sources, budget, (span) => isWithin(span, range) && isInSelection(selection, span)),
    find: ({ sources, of, outside, budget }) => {
      const isLookedUp = createLookup(of);
      return select(
        sources,
        budget,
        (span) => isLookedUp(span) && (outside === undefined || !isWithin(span, outside)),
      );
    },
  };
}

function isWithin({ end }: Span, { from, to }: { readonly from: Instant; readonly to: Instant }): boolean {
  return end >= from && end <= to;
}

const selections: Readonly<Record<SpanSelection, (span: Span) => boolean>> = {
  all: () => true,
  entries: ({ entry, report }) => entry && !report,
  children: ({ entry }) => !entry,
  calls: ({ span_kind }) => span_kind === "client" || span_kind === "producer",
  exceptions: ({ events }) => events.some(({ name }) => name === "exception"),
  statements: ({ span_kind, statement }) => span_kind === "client" && statement !== undefined,
};

export function isInSelection(selection: SpanSelection, span: Span): boolean {
  return selections[selection](span);
}

/** Whether a look-up finds a span. What it names is put into sets once, since each is asked of thousands of spans. */
export function createLookup(of: SpanLookup["of"]): (span: Span) => boolean {
  if (of.by === "trace") {
    const traceIds = new Set(of.traceIds);
    return (span) => traceIds.has(span.trace_id) && isInSelection(of.select, span);
  }
  if (of.by === "id") {
    const ids = new Set(of.spanIds);
    return (span) => ids.has(span.span_id);
  }
  if (of.by === "parent") {
    const ids = new Set<string | undefined>(of.spanIds);
    return (span) => ids.has(span.parent_span_id) && isInSelection("statements", span);
  }
  const printPlace = (trace: string, id: string | undefined) => `${trace} ${id}`;
  const named = new Set(of.spans.map(({ trace_id, span_id }) => printPlace(trace_id, span_id)));
  if (of.by === "span") return (span) => named.has(printPlace(span.trace_id, span.span_id));
  const readTraces = new Set(of.areTracesRead ? of.spans.map(({ trace_id }) => trace_id) : []);
  return (span) => {
    if (readTraces.has(span.trace_id)) return false;
    const isChild =
      span.parent_span_id !== undefined && named.has(printPlace(span.trace_id, span.parent_span_id));
    if (isChild && isInSelection("calls", span)) return true;
    if (!span.entry || span.report) return false;
    const isServer = span.span_kind === "server" || span.span_kind === "consumer";
    const isOther = isServer && named.has(printPlace(span.trace_id, span.span_id));
    return (
      isChild || isOther || span.links.some((link) => named.has(printPlace(link.trace_id, link.span_id)))
    );
  };
}

/** Whether the look-up may leave the span out, because its trace has been read. */
export function isOfReadTrace(
  { spans, areTracesRead = false }: Extract<SpanLookup["of"], { readonly by: "caller" }>,
  { trace_id }: Pick<Span, "trace_id">,
): boolean {
  return areTracesRead && spans.some((one) => one.trace_id === trace_id);
}

// ---- Traces at random ---------------------------------------------------------------------------------------

/** Around this time `makeTraces` makes its traces. */
export const midnight = Date.UTC(2026, 0, 16);
const statements = [
  (n: number) => `SELECT * FROM users WHERE id = ${n}`,
  (n: number) => `select name from items where sku in (${n}, ${n + 1})`,
  (n: number) => `INSERT INTO log VALUES ('line ${n}')`,
] as const;

/**
 * Random traces around midnight: of a shop that calls a stock service of another site and queues work for its own worker, and
 * of a blog. Roots may be missing, spans may end after their root, and times and durations tie.
 */
export function makeTraces(seed: number, count: number): readonly ModelSpan[] {
  const source = createSource(seed);
  return Array.from({ length: count }, (_, n) => makeTrace(source, n)).flat();
}

type SpanStart = Pick<ModelSpan, "trace" | "service" | "name" | "kind" | "start" | "end">;

/** Random choices. The order of the calls decides what a seed makes. */
interface RandomSource {
  /** An integer from 0 to below the limit. */
  readonly below: (limit: number) => number;
  readonly chance: (probability: number) => boolean;
  readonly pick: <T>(choices: readonly [T, ...T[]]) => T;
  readonly hex: (digits: number) => string;
}

function createSource(seed: number): RandomSource {
  const random = createRandom(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  return {
    below,
    chance: (probability) => random() < probability,
    pick: (choices) => choices[below(choices.length)] ?? choices[0],
    hex: (digits) => Array.from({ length: digits }, () => below(16).toString(16)).join(""),
  };
}

function makeSpan({ hex, chance, pick }: RandomSource, over: Partial<ModelSpan> & SpanStart): ModelSpan {
  return {
    site: "shop",
    id: hex(16),
    status: chance(0.15) ? "ERROR" : pick(["OK", "UNSET"]),
    attributes: {},
    resource: { "deployment.environment.name": "test" },
    events: [],
    links: [],
    count: 1,
    ...over,
  };
}

/** One of few durations, so that some tie. */
function pickDuration({ pick }: RandomSource): bigint {
  return BigInt(pick([500, 1_000, 1_000, 2_500, 12_000, 40_000])) * 1_000n;
}

function addNanos(time: bigint, nanos: bigint): Instant {
  return (time + nanos) as Instant;
}

function makeException({ chance, pick }: RandomSource, time: Instant): SpanEvent {
  return {
    name: "exception",
    time,
    attributes: {
      "exception.type": pick(["Timeout", "KeyError", "NoMethodError"]),
      "exception.message": "it broke",
      ...(chance(0.3) ? { "appsignal.incident_digest": pick(["digest-1", "digest-2"]) } : {}),
    },
  };
}

/** A request with a span below it, which has queries, and of the shop a call and a queued job. */
function makeTrace(source: RandomSource, n: number): readonly ModelSpan[] {
  const { chance, pick } = source;
  const root = makeRoot(source);
  const { site, trace, service, start } = root;
  const middle = makeSpan(source, {
    site,
    trace,
    service,
    kind: "internal",
    parent: root.id,
    start: addNanos(start, 1_000_000n),
    end: addNanos(start, 1_000_000n + pickDuration(source)),
    name: pick(["render", "load"]),
    events: chance(0.3) ? [makeException(source, addNanos(start, 2_000_000n))] : [],
  });
  const spans: ModelSpan[] = [middle];
  // In some traces the root never arrived, or went to another cluster.
  if (!chance(0.1)) {
    spans.push(chance(0.1) ? { ...root, events: [makeException(source, root.end)] } : root);
  }
  spans.push(...makeQueries(source, root, middle));
  if (site === "shop" && chance(0.6)) spans.push(...makeCall(source, root, middle, n));
  if (site === "shop" && chance(0.4)) spans.push(...makeJob(source, root, middle));
  return spans;
}

function makeRoot(source: RandomSource): ModelSpan {
  const { below, chance, pick, hex } = source;
  const trace = hex(32);
  const start = addNanos(fromMillis(midnight - 60 + below(120)), BigInt(below(3)) * 250_000n);
  const site = chance(0.25) ? "blog" : "shop";
  const service = site === "blog" ? "blog-web" : pick(["shop-web", "shop-api"]);
  const kind = pick<SpanKind>(["server", "server", "server", "internal"]);
  const action = pick(["Cart#show", "Cart#pay", "Items#index", ""]);
  const tags = chance(0.5) ? { "appsignal.tag.region": pick(["eu", "us"]) } : {};
  return makeSpan(source, {
    site,
    trace,
    service,
    kind,
    start,
    end: addNanos(start, pickDuration(source) + 20_000_000n),
    name: pick(["GET /cart", "GET /items", "job"]),
    revision: pick(["r1", "r2"]),
    attributes: {
      ...tags,
      ...(kind === "server" ? { "http.request.method": "GET" } : {}),
      ...(action === "" ? {} : { "appsignal.action_name": action }),
      ...(chance(0.1) ? { "appsignal.namespace": "admin" } : {}),
    },
  });
}

/** Queries below a span with one statement, of which five or more are an N+1. */
function makeQueries(
  source: RandomSource,
  { site, trace, service, start: begin }: ModelSpan,
  { id: parent }: ModelSpan,
): readonly ModelSpan[] {
  const print = source.pick(statements);
  const spans: ModelSpan[] = [];
  for (let query = source.pick([0, 1, 4, 5, 7]); query > 0; query -= 1) {
    const start = addNanos(begin, BigInt(2 + query) * 1_000_000n);
    const text = print(source.below(1_000));
    spans.push(
      makeSpan(source, {
        site,
        trace,
        service,
        kind: "client",
        parent,
        start,
        end: addNanos(start, pickDuration(source)),
        name: "query",
        attributes: { "db.system.name": "postgresql", "db.query.text": text },
      }),
    );
  }
  return spans;
}

/** A call to the stock service, which may have no spans. */
function makeCall(
  source: RandomSource,
  { trace, service, start: begin }: ModelSpan,
  { id: parent }: ModelSpan,
  n: number,
): readonly ModelSpan[] {
  const { chance, pick } = source;
  const start = addNanos(begin, 3_000_000n);
  const call = makeSpan(source, {
    trace,
    service,
    kind: "client",
    parent,
    name: "POST",
    start,
    end: addNanos(start, pickDuration(source)),
    attributes: {
      [n % 4 === 0 ? "net.peer.name" : "server.address"]: pick(["stock.internal", "pay.example"]),
    },
  });
  if (!chance(0.7)) return [call];
  const stock = { site: "stock", trace, service: "stock" } as const;
  const received = addNanos(start, 100_000n);
  const request = makeSpan(source, {
    ...stock,
    kind: "server",
    parent: call.id,
    name: "POST /reserve",
    start: received,
    end: addNanos(received, pickDuration(source)),
    revision: "s1",
    attributes: { "http.request.method": "POST" },
    events: chance(0.2) ? [makeException(source, received)] : [],
  });
  if (!chance(0.5)) return [call, request];
  const inner = addNanos(received, 100_000n);
  const reserve = makeSpan(source, {
    ...stock,
    kind: "internal",
    parent: request.id,
    name: "reserve",
    start: inner,
    end: addNanos(inner, pickDuration(source)),
    events: chance(0.3) ? [makeException(source, inner)] : [],
  });
  return [call, request, reserve];
}

/** A queued job. Its worker is a child in the same trace, or linked from a trace of its own, and may have no spans. */
function makeJob(source: RandomSource, root: ModelSpan, middle: ModelSpan): readonly ModelSpan[] {
  const { below, chance, hex } = source;
  const { trace, service } = root;
  const start = addNanos(root.start, 4_000_000n);
  const parent = chance(0.5) ? middle.id : root.id;
  const attributes = { "messaging.destination.name": "mails" };
  const send = makeSpan(source, {
    trace,
    service,
    kind: "producer",
    parent,
    name: "mails send",
    start,
    end: addNanos(start, pickDuration(source)),
    attributes,
  });
  const received = addNanos(start, BigInt(1 + below(80)) * 1_000_000n);
  const isLinked = chance(0.5);
  const worker = makeSpan(source, {
    trace: isLinked ? hex(32) : trace,
    service: "shop-worker",
    kind: "consumer",
    name: "MailJob",
    start: received,
    end: addNanos(received, pickDuration(source)),
    revision: "r2",
    attributes,
    ...(isLinked ? {} : { parent: send.id }),
    links: isLinked ? [{ trace_id: trace, span_id: send.id, trace_state: "", attributes: {} }] : [],
  });
  return chance(0.8) ? [send, worker] : [send];
}

export function createRandom(seed: number): () => number {
  let state = (seed * 0x9e3779b1) | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
