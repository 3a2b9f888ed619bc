// The raw samples of the metric suite, in a form of no particular server, and their OpenMetrics text. Two tenants have the
// same metrics with other values; the label `tenant` separates them.
import { hostileTexts } from "./injection-texts.ts";

/** The series of one metric. `unknown` is a plain name without a declared type. */
export interface RawFamily {
  readonly metric: string;
  readonly kind: "gauge" | "counter" | "histogram" | "summary" | "unknown";
  readonly series: readonly RawSeries[];
}
export interface RawSeries {
  /** `""` for the metric's own name, which of a summary has a label `quantile`. */
  readonly suffix: "" | "_bucket" | "_sum" | "_count";
  readonly labels: Readonly<Record<string, string>>;
  /** Milliseconds since 1970, ascending. */
  readonly samples: readonly RawSample[];
}
export type RawSample = readonly [time: number, value: number];

export const tenants = ["shop", "other"] as const;
export type Tenant = (typeof tenants)[number];

/** Full hour. Most series have samples from here for three hours, every 15 seconds. */
export const base = Date.UTC(2026, 0, 15, 10);
export const second = 1_000;
export const minute = 60 * second;
export const hour = 60 * minute;
export const day = 24 * hour;

/** All that a subject is filled with; names that need quotes only if it supports them. */
export function buildRawFamilies(quotedNames: boolean): readonly RawFamily[] {
  const families = tenants.flatMap((tenant, n) => buildFamilies(tenant, createRandom(n + 1)));
  const merged = new Map<string, RawFamily>();
  for (const family of families) {
    if (!quotedNames && !isPlain(family)) continue;
    const before = merged.get(family.metric)?.series ?? [];
    merged.set(family.metric, { ...family, series: [...before, ...family.series] });
  }
  return [...merged.values()];
}

const plainName = /^[A-Za-z_][A-Za-z0-9_]*$/;
function isPlain({ metric, series }: RawFamily): boolean {
  return (
    plainName.test(metric) &&
    series.every(({ labels }) => Object.keys(labels).every((key) => plainName.test(key)))
  );
}

function buildFamilies(tenant: Tenant, random: () => number): readonly RawFamily[] {
  const family = (
    metric: string,
    kind: RawFamily["kind"],
    series: readonly (readonly [labels: Readonly<Record<string, string>>, samples: readonly RawSample[]])[],
  ): RawFamily => ({
    metric,
    kind,
    series: series.map(([labels, samples]) => ({ suffix: "", labels: { ...labels, tenant }, samples })),
  });
  const whole = (most: number) => Math.floor(random() * most);
  const walk = () => {
    let value = 40 + whole(20);
    return () => {
      value += whole(21) - 10;
      return value / 4;
    };
  };
  const climb = (most: number, from = 0) => {
    let value = from;
    return () => {
      value += whole(most);
      return value;
    };
  };
  const edges = [0, 1, 5, 10, 15, 60, 61, 120].flatMap((at) =>
    [-1, 0, 1].map((off) => base + at * minute + off),
  );

  const gauges = family("temperature", "gauge", [
    [{ room: "off the grid", floor: "1" }, sampleEvery(15 * second, base + 7_123, base + 3 * hour, walk())],
    [{ room: "on the grid", floor: "1" }, sampleEvery(15 * second, base, base + 3 * hour, walk())],
    [
      { room: "with gaps", floor: "2" },
      sampleEvery(20 * second, base + 500, base + 3 * hour, walk()).filter(
        ([time]) => (time - base) % (50 * minute) > 35 * minute,
      ),
    ],
    [
      { room: "not a number", floor: "2" },
      sampleEvery(30 * second, base + 1_000, base + 2 * hour, walk()).map(([time, value], n) => [
        time,
        [value, Number.NaN, -value, Number.POSITIVE_INFINITY, value, Number.NEGATIVE_INFINITY][n % 6] ??
          value,
      ]),
    ],
    [{ room: "only NaN" }, sampleEvery(minute, base, base + hour, () => Number.NaN)],
    [{ room: "edges" }, edges.map((time) => [time, whole(1_000) / 8] as const)],
  ]);

  const counters = family("requests_total", "counter", [
    [
      { host: "steady", code: "200" },
      sampleEvery(15 * second, base - hour + 3_210, base + 3 * hour, climb(9, 5_000)),
    ],
    [
      { host: "steady", code: "500" },
      sampleEvery(15 * second, base - hour + 3_210, base + 3 * hour, climb(2, 40)),
    ],
    [
      { host: "on the grid", code: "200" },
      sampleEvery(15 * second, base - 5 * minute, base + 3 * hour, climb(7, 100)),
    ],
    [
      { host: "restarts", code: "200" },
      addRestarts(sampleEvery(15 * second, base - 20 * minute, base + 3 * hour, climb(30)), whole),
    ],
    // Exceeds its old value within one bucket after a restart, twice within a minute.
    [
      { host: "overtakes", code: "200" },
      sampleEvery(10 * second, base - minute, base + hour, climb(3, 1)).map(([time, value], n) => [
        time,
        n % 6 === 2 || n % 6 === 4 ? 0 : value + (n % 6) * 7,
      ]),
    ],
    [
      { host: "born", code: "200" },
      sampleEvery(15 * second, base + 47 * minute + 100, base + 2 * hour, climb(5, 700)),
    ],
    [
      { host: "comes back", code: "200" },
      [
        ...sampleEvery(15 * second, base - 30 * hour, base - 29 * hour, climb(4, 20)),
        ...sampleEvery(15 * second, base + 70 * minute, base + 100 * minute, climb(4, 9_000)),
      ],
    ],
    [
      { host: "gap", code: "200" },
      sampleEvery(15 * second, base - 10 * minute, base + 3 * hour, climb(6)).filter(
        ([time]) => time < base + 20 * minute || time > base + 62 * minute,
      ),
    ],
    [
      { host: "not a number", code: "200" },
      sampleEvery(15 * second, base - 10 * minute, base + hour, climb(6)).map(([time, value], n) => [
        time,
        n % 7 === 3 ? Number.NaN : value,
      ]),
    ],
    // Non-finite samples are no past, however long they were there.
    [
      { host: "long not a number", code: "200" },
      sampleEvery(15 * second, base - 10 * minute, base + hour, climb(6, 50)).map(([time, value], n) => [
        time,
        time >= base + 20 * minute ? value : n % 2 === 0 ? Number.NaN : Number.POSITIVE_INFINITY,
      ]),
    ],
    [
      { host: "was a number", code: "200" },
      sampleEvery(15 * second, base - 40 * minute, base + hour, climb(6, 50)).map(([time, value]) => [
        time,
        time >= base + 20 * minute || time < base - 30 * minute ? value : Number.NaN,
      ]),
    ],
    [{ host: "edges" }, edges.map((time, n) => [time, n * n * 3] as const)],
    [{ host: "before the range" }, sampleEvery(minute, base - 3 * hour, base - 2 * hour, climb(5))],
  ]);

  // The metric itself begins within the range, and its second series later.
  const births = family("deploys_total", "counter", [
    [{ region: "first" }, sampleEvery(30 * second, base + 10 * minute + 250, base + hour, climb(2, 300))],
    [{ region: "second" }, sampleEvery(30 * second, base + 25 * minute, base + hour, climb(2, 50))],
    [
      { region: "not a number before" },
      sampleEvery(30 * second, base - 20 * minute, base + hour, climb(2, 70)).map(([time, value]) => [
        time,
        time < base + 30 * minute ? Number.NaN : value,
      ]),
    ],
  ]);

  const long = [
    family("deliveries_total", "counter", [
      [{}, addRestarts(sampleEvery(10 * minute, base - 2 * day, base + 2 * day, climb(50, 7)), whole)],
    ]),
    family("disk_free", "gauge", [
      [{}, sampleEvery(10 * minute, base - 2 * day + 333, base + 2 * day, walk())],
    ]),
  ];
  const plain = [
    family("queue_depth", "unknown", [[{ queue: "mail" }, sampleEvery(minute, base, base + hour, walk())]]),
    family("jobs_count", "unknown", [
      [{ queue: "mail" }, sampleEvery(minute, base - minute, base + hour, climb(9))],
    ]),
    family("work_total", "unknown", [[{}, sampleEvery(minute, base - minute, base + hour, climb(9))]]),
  ];

  const zoo = family(
    "zoo",
    "gauge",
    hostileTexts
      .filter((text, n) => n % 4 === 0 && text !== "" && !text.includes("\0") && text.isWellFormed())
      .map((v, n) => [
        { v },
        [-1, 0, 1].map((at) => [
          base + at * minute,
          (tenant === "shop" ? 1 : -1_000) * (n + 1) - at * at * 0.25,
        ]),
      ]),
  );
  const keys = family("keyed", "gauge", [
    [{ a: "1", b: "1" }, sampleEvery(minute, base, base + hour, walk())],
    [{ a: "1", c: "2" }, sampleEvery(minute, base, base + hour, walk())],
    [{ b: "1" }, sampleEvery(minute, base, base + hour, walk())],
  ]);
  const quoted = family("http.server.größe", "gauge", [
    [{ "http.route": "/a b", größe: "XL" }, sampleEvery(minute, base, base + hour, walk())],
    [{ "http.route": 'x"} or zoo{v="', größe: "*" }, sampleEvery(minute, base, base + hour, walk())],
  ]);
  const own = family(`only_${tenant}`, "gauge", [
    [{ v: tenant }, sampleEvery(minute, base, base + hour, walk())],
  ]);

  const observed = (
    labels: Readonly<Record<string, string>>,
    over: Partial<Parameters<typeof createRecorder>[0]>,
  ) =>
    createRecorder({
      labels: { ...labels, tenant },
      bounds: [0.1, 0.25, 0.5, 1, 2.5],
      times: sampleEvery(15 * second, base - 10 * minute + 3_000, base + 3 * hour, () => 0).map(
        ([time]) => time,
      ),
      most: 12,
      draw: () => Math.floor(random() ** 3 * 400) / 100,
      restart: () => false,
      random,
      ...over,
    });
  const histograms: RawFamily = {
    metric: "latency_seconds",
    kind: "histogram",
    series: [
      ...observed({ route: "/", method: "GET" }, {}),
      ...observed({ route: "/cart", method: "GET" }, { restart: (n) => n % 97 === 40 || n % 97 === 41 }),
      // So few observations that a restart shows in hardly any bucket, and many minutes have none.
      ...observed({ route: "/rare", method: "POST" }, { most: 2, restart: (n) => n % 31 === 11 }),
      ...observed(
        { route: "/born", method: "POST" },
        {
          times: sampleEvery(15 * second, base + 40 * minute, base + 2 * hour, () => 0).map(([time]) => time),
        },
      ),
    ],
  };
  // Negative observations make the sum fall without a restart.
  const signed: RawFamily = {
    metric: "balance",
    kind: "histogram",
    series: observed(
      { account: "a" },
      {
        bounds: [-10, -1, 0, 1, 10],
        draw: () => Math.floor(random() * 4_000) / 100 - 20,
        restart: (n) => n % 200 === 150,
      },
    ),
  };
  // Targets that export a histogram without its count, or without the bucket +Inf, beside one with all parts.
  const incomplete: RawFamily = {
    metric: "waits_seconds",
    kind: "histogram",
    series: [
      ...observed({ job: "all parts" }, { restart: (n) => n % 97 === 40 }),
      ...observed({ job: "no count" }, { restart: (n) => n % 53 === 11 }).filter(
        ({ suffix }) => suffix !== "_count",
      ),
      ...observed({ job: "no infinity" }, { restart: (n) => n % 71 === 30 }).filter(
        ({ labels }) => labels.le !== "+Inf",
      ),
    ],
  };
  // How many it has observed is not known.
  const uncountable: RawFamily = {
    metric: "lost_seconds",
    kind: "histogram",
    series: [
      ...observed({ job: "all parts" }, {}),
      ...observed({ job: "lost" }, {}).filter(
        ({ suffix, labels }) => suffix !== "_count" && labels.le !== "+Inf",
      ),
    ],
  };
  const summaries: RawFamily = {
    metric: "rpc_seconds",
    kind: "summary",
    series: ["read", "write"].flatMap((method) => {
      const parts = observed({ method }, { bounds: [], restart: (n) => n % 120 === 60 });
      const quantiles = method === "read" ? ["0", "0.5", "0.9", "1"] : ["0.9"];
      return [
        ...parts.filter(({ suffix }) => suffix !== "_bucket"),
        ...quantiles.map(
          (quantile): RawSeries => ({
            suffix: "",
            labels: { method, tenant, quantile },
            samples: sampleEvery(
              15 * second,
              base - 10 * minute + 3_000,
              base + 3 * hour,
              () => whole(90) / 100 + Number(quantile),
            ),
          }),
        ),
      ];
    }),
  };
  // The second one is new although the first one lacks a part.
  const arrivals = (["_count", "_bucket"] as const).map((lacking): RawFamily => {
    const appear = (job: string, from: number) => {
      const times = sampleEvery(15 * second, from, base + 2 * hour, () => 0).map(([time]) => time);
      return observed({ job }, { times });
    };
    return {
      metric: `arrivals${lacking}less_seconds`,
      kind: "histogram",
      series: [
        ...appear("first", base + 20 * minute).filter(({ suffix }) => suffix !== lacking),
        ...appear("second", base + 40 * minute),
      ],
    };
  });
  return [
    gauges,
    counters,
    births,
    ...long,
    ...plain,
    zoo,
    keys,
    quoted,
    own,
    histograms,
    signed,
    incomplete,
    uncountable,
    summaries,
    ...arrivals,
  ];
}

// ---- Making samples -----------------------------------------------------------------------------------------

function sampleEvery(step: number, from: number, to: number, value: () => number): readonly RawSample[] {
  return Array.from({ length: Math.ceil((to - from) / step) }, (_, n) => [from + n * step, value()] as const);
}

/** Falls back to a small value now and then, as when a process restarts. */
function addRestarts(samples: readonly RawSample[], whole: (most: number) => number): readonly RawSample[] {
  let lost = 0;
  return samples.map(([time, value], n) => {
    if (n % 83 === 50 || n % 83 === 52) lost = value - whole(3);
    return [time, value - lost];
  });
}

/** The parts of a histogram that has seen up to `most` observations before each of its samples. */
function createRecorder(over: {
  readonly labels: Readonly<Record<string, string>>;
  readonly bounds: readonly number[];
  readonly times: readonly number[];
  readonly most: number;
  readonly draw: () => number;
  /** Whether the process restarted before the sample with this index. */
  readonly restart: (index: number) => boolean;
  readonly random: () => number;
}): readonly RawSeries[] {
  const bounds = [...over.bounds, Number.POSITIVE_INFINITY];
  let counts = bounds.map(() => 0);
  let hundredths = 0;
  const rows = over.times.map((time, index) => {
    if (over.restart(index)) {
      counts = bounds.map(() => 0);
      hundredths = 0;
    }
    const more = Array.from({ length: Math.floor(over.random() * over.most) }, over.draw);
    counts = bounds.map((bound, n) => (counts[n] ?? 0) + more.filter((value) => value <= bound).length);
    hundredths += more.reduce((sum, value) => sum + Math.round(value * 100), 0);
    return { time, counts, sum: hundredths / 100 };
  });
  const part = (
    suffix: RawSeries["suffix"],
    extra: Readonly<Record<string, string>>,
    value: (row: (typeof rows)[number]) => number,
  ): RawSeries => ({
    suffix,
    labels: { ...over.labels, ...extra },
    samples: rows.map((row) => [row.time, value(row)] as const),
  });
  return [
    ...bounds.map((bound, n) =>
      part(
        "_bucket",
        { le: Number.isFinite(bound) ? String(bound) : "+Inf" },
        ({ counts }) => counts[n] ?? 0,
      ),
    ),
    part("_sum", {}, ({ sum }) => sum),
    part("_count", {}, ({ counts }) => counts.at(-1) ?? 0),
  ];
}

/** mulberry32. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Each series under its whole name. */
export function nameSeries(families: readonly RawFamily[]): readonly Omit<RawSeries, "suffix">[] {
  return families.flatMap(({ metric, series }) =>
    series.map(({ suffix, labels, samples }) => ({
      labels: { __name__: `${metric}${suffix}`, ...labels },
      samples,
    })),
  );
}

// ---- OpenMetrics --------------------------------------------------------------------------------------------

/**
 * One file for `promtool tsdb create-blocks-from openmetrics`. Readers multiply the seconds by 1,000 and cut off the
 * rest, which would make 1768471207.123 one millisecond less; half a millisecond more keeps every time what it is.
 */
export function printOpenMetrics(families: readonly RawFamily[]): string {
  const lines: string[] = [];
  for (const { metric, kind, series } of families) {
    lines.push(`# TYPE ${printName(metric.replace(/_total$/, ""))} ${kind}`);
    for (const { suffix, labels, samples } of series) {
      const name = `${metric}${suffix}`;
      const pairs = Object.entries(labels).map(([key, value]) => `${printName(key)}=${quote(value)}`);
      const id = plainName.test(name)
        ? `${name}{${pairs.join(",")}}`
        : `{${[quote(name), ...pairs].join(",")}}`;
      for (const [time, value] of samples) lines.push(`${id} ${printValue(value)} ${(time + 0.5) / 1_000}`);
    }
  }
  return `${lines.join("\n")}\n# EOF\n`;
}

function printName(name: string): string {
  return plainName.test(name) ? name : quote(name);
}

function quote(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
}

function printValue(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  return Number.isFinite(value) ? String(value) : value > 0 ? "+Inf" : "-Inf";
}
