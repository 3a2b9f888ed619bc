// Log lines of a small shop and its blog, as a function of seed and time: second by second, each with a random
// source of its own, so that any window can be made without the ones before it. Bodies hold on purpose what is hard
// to serve: numbers like 200.0 and integers past 2^53, keys with dots, nested arrays, odd characters, and now and
// then several hundred lines in one millisecond.
import { parseNumberLossless } from "../../../src/core/json/lossless-json.ts";
import { type Severity, severities } from "../../../src/core/rows.ts";
import { fromMillis, type Instant, second, type TimeRange, toMillis } from "../../../src/core/time.ts";
import type { StoredLine } from "../stores/log-store.ts";
import { createRandom, pick, type Random } from "./seeded-random.ts";
import { type DemoRequest, type DemoSite, demoSites, generateRequest } from "./workload.ts";

interface Stream {
  /** Chance of each line of a second; their number is the most that a second has without a burst. */
  readonly pace: readonly number[];
  /** Every request leaves at least one line. */
  readonly traced?: boolean;
  /** `request` is the one that begins in the line's second, if one does. */
  readonly make: (random: Random, site: DemoSite, request: DemoRequest | undefined) => Content;
}
type Content = Omit<StoredLine, "id" | "time" | "json"> & { readonly body: object };

const streams: Readonly<Record<string, Stream>> = {
  app: { pace: [0.5, 0.2], traced: true, make: makeApp },
  nginx: { pace: [0.5, 0.3, 0.1], make: makeNginx },
  worker: { pace: [0.2], make: makeWorker },
};

/** `demo-shop-app` and so on: an index for each site and source. */
export const logIndices: readonly string[] = demoSites.flatMap(({ name }) =>
  Object.keys(streams).map((source) => `demo-${name}-${source}`),
);

/** One second in so many has a burst, in each index. */
const burstEvery = 1_800;

/**
 * The lines of one of `logIndices` in the seconds that end in `(from, to]`, by time. Adjoining windows make adjoining
 * lines: none twice and none left out.
 */
export function generateLines(seed: number, index: string, { from, to }: TimeRange): StoredLine[] {
  const site = demoSites.find(({ name }) => index.startsWith(`demo-${name}-`));
  const stream = streams[index.split("-").at(-1) ?? ""];
  if (site === undefined || stream === undefined) return [];
  const lines: StoredLine[] = [];
  const last = Math.floor(toMillis(to) / second);
  for (let slot = Math.floor(toMillis(from) / second); slot < last; slot += 1) {
    const random = createRandom(`${seed} ${index} ${slot}`);
    const times = stream.pace.filter((chance) => random() < chance).map(() => Math.floor(random() * second));
    if (random() * burstEvery < 1) {
      const millisecond = Math.floor(random() * second);
      for (let count = 200 + Math.floor(random() * 500); count > 0; count -= 1) times.push(millisecond);
    }
    const request = generateRequest(seed, site, slot);
    if (stream.traced === true && request !== undefined && times.length === 0) {
      times.push(toMillis(request.start) % second);
    }
    for (const [position, millis] of times.sort((a, b) => a - b).entries()) {
      const { body, ...fields } = stream.make(random, site, request);
      const time = (fromMillis(slot * second + millis) + BigInt(Math.floor(random() * 1_000_000))) as Instant;
      lines.push({
        id: `${index}/${slot.toString(36)}-${position}`,
        time,
        ...fields,
        json: JSON.stringify(body),
      });
    }
  }
  return lines;
}

// ---- What the lines say -------------------------------------------------------------------------------------

function makeApp(random: Random, site: DemoSite, request: DemoRequest | undefined): Content {
  const severity = request?.failed === true ? "error" : pickSeverity(random);
  const action = (request?.action ?? pick(random, site.actions)).path;
  const order = 9_007_199_254_740_993n + BigInt(Math.floor(random() * 1_000_000));
  const items = Array.from({ length: Math.floor(random() * 3) }, () => ({
    sku: pick(random, ["A-1", "B 2 (large)", "C.3", 'D"4"', "größe-38"]),
    price: parseNumberLossless(pick(random, ["200.0", "19.99", "0.50", "1e3", "12345678901234567890"])),
    quantity: 1 + Math.floor(random() * 4),
  }));
  const bad = severity === "error" || severity === "critical" || severity === "alert" || severity === "fatal";
  const message = bad
    ? pick(random, [
        `Payment of order ${order} failed: card declined`,
        `Timeout after 5000ms calling "inventory"`,
        `NoMethodError: undefined method 'price' for nil (in ${action})`,
        "Deadlock found when trying to get lock; try restarting transaction",
      ])
    : pick(random, [
        `Completed ${action} for user ${Math.floor(random() * 900)}`,
        `Order ${order} placed`,
        "Cache miss: products/list (ttl=60s)",
        "Señal recibida ✓ — 🎉 日本語",
        "path C:\\temp\\cart.json\twritten",
      ]);
  return {
    severity,
    message,
    hostname: pickHost(random, site, "web"),
    group: "production",
    body: {
      service: { name: site.name, version: "2.14.0" },
      http: { request: { method: "GET", path: action }, response: { status_code: bad ? 500 : 200 } },
      duration_ms: parseNumberLossless((random() * 400).toFixed(2)),
      order_id: parseNumberLossless(String(order)),
      items,
      tags: random() < 0.5 ? ["checkout", "eu-west"] : [],
      "k8s.pod.name": `${site.name}-web-${Math.floor(random() * 9)}`,
      user: random() < 0.2 ? null : { id: Math.floor(random() * 900), vip: random() < 0.1 },
      ...(request === undefined ? {} : { trace_id: request.traceId, span_id: request.spanId }),
      ...(bad ? { error: { type: "RuntimeError", stack: ["cart.rb:12", "checkout.rb:88"] } } : {}),
    },
  };
}

function makeNginx(random: Random, site: DemoSite): Content {
  const status = pick(random, ["200", "200", "200", "200", "304", "404", "500"]);
  const { path } = pick(random, site.actions);
  const method = pick(random, ["GET", "GET", "GET", "POST"]);
  const bytes = Math.floor(random() * 50_000);
  const address = `203.0.113.${Math.floor(random() * 250)}`;
  const severity = status === "500" ? "error" : status === "404" ? "warn" : "info";
  return {
    severity,
    message: `${address} - - "${method} ${path} HTTP/1.1" ${status} ${bytes} "-" "Mozilla/5.0 (X11; Linux x86_64)"`,
    hostname: pickHost(random, site, "edge"),
    group: "access",
    body: {
      remote_addr: address,
      request: { method, uri: path, protocol: "HTTP/1.1" },
      status: parseNumberLossless(status),
      bytes,
      request_time: parseNumberLossless((random() / 2).toFixed(3)),
      upstreams: [{ addr: "10.0.0.5:3000", time: parseNumberLossless((random() / 3).toFixed(3)) }],
    },
  };
}

function makeWorker(random: Random, site: DemoSite): Content {
  const severity = pickSeverity(random);
  const job = pick(random, ["SendMailJob", "ReindexJob", "ThumbnailJob"]);
  const attempt = 1 + Math.floor(random() * 3);
  // Some shippers send text alone: no host, no group, no structure.
  if (random() < 0.1) return { severity: "unknown", message: `${job} says: (no level)`, body: {} };
  return {
    severity,
    message: `${job} attempt ${attempt} ${severity === "error" ? "failed" : "done"}`,
    hostname: pickHost(random, site, "worker"),
    group: "background",
    body: {
      job: { class: job, attempt, queue: pick(random, ["default", "mail", "low"]) },
      latency: parseNumberLossless(`${Math.floor(random() * 900)}.0`),
      args: [Math.floor(random() * 1_000), "a b", [1, [2, 3]], { retry: attempt < 3 }],
    },
  };
}

function pickHost(random: Random, { name, hosts }: DemoSite, role: string): string {
  return `${name}-${role}-${1 + Math.floor(random() * hosts)}`;
}

// Most lines say that all is well, and every severity occurs within minutes.
const weights: Readonly<Record<Severity, number>> = {
  trace: 2,
  debug: 15,
  info: 60,
  notice: 4,
  warn: 8,
  error: 6,
  critical: 1,
  alert: 1,
  fatal: 1,
  unknown: 2,
};

function pickSeverity(random: Random): Severity {
  let rest = random() * 100;
  for (const severity of severities) {
    rest -= weights[severity];
    if (rest < 0) return severity;
  }
  return "info";
}
