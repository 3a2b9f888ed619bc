// Two applications for docker-compose.yml, for as long as it runs. The shop sends what it does by OTLP; the blog writes a log
// file.
//   node load.ts http://collector:4318 /var/log/blog/blog.log
// It runs alone in a container, so it has nothing but Node.
import { randomBytes } from "node:crypto";
import { appendFileSync, statSync, truncateSync } from "node:fs";

const [, , collector = "http://127.0.0.1:4318", logFile = "blog.log"] = process.argv;
const perSecond = 5;
const maxLogFileBytes = 10_000_000;

const pages = ["/products", "/products/17", "/cart", "/checkout"] as const;
const pick = <T>(list: readonly [T, ...T[]]): T => list[Math.floor(Math.random() * list.length)] ?? list[0];
const toNanos = (millis: number) => `${Math.round(millis * 1_000)}000`;
const toAttributes = (values: Readonly<Record<string, string | number>>) =>
  Object.entries(values).map(([key, value]) => ({
    key,
    value: typeof value === "number" ? { intValue: String(value) } : { stringValue: value },
  }));
const describeService = (name: string) => ({
  attributes: toAttributes({
    "service.namespace": "shop",
    "service.name": name,
    "service.instance.id": `${name}-1`,
    "service.version": "1.0.0",
    "host.name": `${name}-1`,
  }),
});

/** Kinds and states as OTLP numbers them. */
const kinds = { server: 2, client: 3 } as const;
const states = { ok: 1, error: 2 } as const;

/** How many requests the shop has answered since its start, by page and status. */
const answered = new Map<string, number>();
const started = Date.now();

/** One visit: a page asks the stock service, which asks its database. */
function visit() {
  const page = pick(pages);
  const fails = Math.random() < 0.05;
  const traceId = randomBytes(16).toString("hex");
  const [web, call, stock, query] = Array.from({ length: 4 }, () => randomBytes(8).toString("hex"));
  const length = 20 + Math.random() * 200;
  const end = Date.now();
  const start = end - length;
  const build = (
    spanId: string | undefined,
    parentSpanId: string | undefined,
    part: number,
    more: object,
  ) => ({
    ...{ traceId, spanId, parentSpanId },
    startTimeUnixNano: toNanos(start + (length * part) / 10),
    endTimeUnixNano: toNanos(end - (length * part) / 10),
    status: { code: fails ? states.error : states.ok },
    ...more,
  });
  const status = fails ? 500 : 200;
  const key = `${page} ${status}`;
  answered.set(key, (answered.get(key) ?? 0) + 1);
  const exception = {
    name: "exception",
    timeUnixNano: toNanos(end),
    attributes: toAttributes({ "exception.type": "OutOfStock", "exception.message": "nothing left of 17" }),
  };
  return {
    web: [
      build(web, undefined, 0, {
        ...{ name: `GET ${page}`, kind: kinds.server },
        attributes: toAttributes({ "http.request.method": "GET", "http.response.status_code": status }),
      }),
      build(call, web, 1, {
        name: "GET /stock",
        kind: kinds.client,
        attributes: toAttributes({ "peer.service": "stock" }),
      }),
    ],
    stock: [
      build(stock, call, 2, { name: "GET /stock", kind: kinds.server, events: fails ? [exception] : [] }),
      build(query, stock, 3, {
        ...{ name: "SELECT stock", kind: kinds.client },
        attributes: toAttributes({
          "db.system.name": "postgresql",
          "db.query.text": `SELECT * FROM stock WHERE product = ${Math.floor(Math.random() * 100)}`,
        }),
      }),
    ],
    line: {
      timeUnixNano: toNanos(end),
      ...(fails
        ? { severityNumber: 17, severityText: "ERROR" }
        : { severityNumber: 9, severityText: "INFO" }),
      body: { stringValue: `GET ${page} ${status} in ${Math.round(length)} ms` },
      attributes: toAttributes({ "http.request.method": "GET", "http.response.status_code": status, page }),
      ...{ traceId, spanId: web },
    },
  };
}

function buildMetrics(now: number) {
  const dataPoints = [...answered].map(([key, count]) => {
    const [page = "", status = ""] = key.split(" ");
    return {
      attributes: toAttributes({ page, status }),
      ...{ startTimeUnixNano: toNanos(started), timeUnixNano: toNanos(now), asInt: String(count) },
    };
  });
  return [
    { name: "shop.requests", sum: { aggregationTemporality: 2, isMonotonic: true, dataPoints } },
    {
      name: "shop.visitors",
      gauge: {
        dataPoints: [
          { timeUnixNano: toNanos(now), asInt: String(20 + Math.floor(10 * Math.sin(now / 60_000))) },
        ],
      },
    },
  ];
}

async function send(signal: "logs" | "traces" | "metrics", body: object): Promise<void> {
  const answer = await fetch(`${collector}/v1/${signal}`, {
    ...{ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) },
    signal: AbortSignal.timeout(10_000),
  });
  if (!answer.ok) throw new Error(`${signal}: ${answer.status} ${await answer.text()}`);
}

async function sendShop(): Promise<void> {
  const visits = Array.from({ length: perSecond }, visit);
  const scope = { name: "load" };
  const resourceSpans = (["web", "stock"] as const).map((name) => ({
    resource: describeService(name),
    scopeSpans: [{ scope, spans: visits.flatMap((one) => one[name]) }],
  }));
  const resource = describeService("web");
  await send("traces", { resourceSpans });
  await send("logs", {
    resourceLogs: [{ resource, scopeLogs: [{ scope, logRecords: visits.map(({ line }) => line) }] }],
  });
  await send("metrics", {
    resourceMetrics: [{ resource, scopeMetrics: [{ scope, metrics: buildMetrics(Date.now()) }] }],
  });
}

function writeBlog(): void {
  if ((statSync(logFile, { throwIfNoEntry: false })?.size ?? 0) > maxLogFileBytes) truncateSync(logFile);
  const level = pick(["info", "info", "info", "warn", "error"]);
  const line = {
    "@timestamp": new Date().toISOString(),
    message: `published article ${Math.floor(Math.random() * 1_000)}`,
    log: { level },
    service: { name: "blog" },
    host: { name: "blog-1" },
    ecs: { version: "8.11.0" },
  };
  appendFileSync(logFile, `${JSON.stringify(line)}\n`);
}

setInterval(() => {
  writeBlog();
  // The Collector may start later, or be away for a moment.
  sendShop().catch((error: unknown) => console.error(String(error)));
}, 1_000);
