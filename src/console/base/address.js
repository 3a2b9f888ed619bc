// What a view shows, as the part of the address after `#`, and back. The fragment never reaches a server, so a query is
// in no access log; the token is in neither. A parameter at its default is left out, and one that cannot be read is at
// its default, so every address shows something.

/**
 * @template T
 * @typedef {{ readonly initial: T, readonly read: (text: string) => T | undefined, readonly write: (value: T) => string }} Parameter
 */

/** @type {Parameter<string>} */
const text = { initial: "", read: (written) => written, write: (value) => value.toWellFormed() };

/** @type {Parameter<boolean>} */
const flag = {
  initial: false,
  read: (written) => (written === "1" ? true : undefined),
  write: (value) => (value ? "1" : ""),
};

/** Names, which may hold commas themselves. @type {Parameter<readonly string[]>} */
const names = {
  initial: [],
  read: (written) => (written === "" ? [] : written.split(",").map(readName)),
  write: (values) => values.map((value) => writeName(value.toWellFormed())).join(","),
};

/** @param {string} value */
function writeName(value) {
  return value.replace(/[%,]/g, encodeURIComponent) || "%";
}
/** @param {string} value */
function readName(value) {
  return value === "%" ? "" : value.replaceAll("%2C", ",").replaceAll("%25", "%");
}

/**
 * @template {string} T
 * @param {readonly [T, ...T[]]} words the first is the default
 * @returns {Parameter<T>}
 */
function createWordParameter(...words) {
  return {
    initial: words[0],
    read: (written) => words.find((one) => one === written),
    write: (value) => value,
  };
}

/** Milliseconds, zero for no bound. @type {Parameter<number>} */
const millis = {
  initial: 0,
  read: (written) => (/^\d{1,9}(\.\d{1,6})?$/.test(written) ? Number(written) : undefined),
  write: String,
};

/** A bound as someone types it, with no more digits than an address has; zero for none. @param {string} typed */
export function readMillisBound(typed) {
  const value = Math.min(Number(typed), 999_999_999);
  return value > 0 ? Number(value.toFixed(6)) : 0;
}

/** By tag key: a value, or a pattern with `*`. @type {Parameter<Readonly<Record<string, string>>>} */
const tags = {
  initial: {},
  read: (written) =>
    Object.fromEntries(
      (written === "" ? [] : written.split(",")).map((pair) => {
        const [key = "", value = ""] = pair.split("=").map(readPart);
        return [key, value];
      }),
    ),
  write: (value) =>
    Object.entries(value)
      .map(([key, pattern]) => `${writePart(key)}=${writePart(pattern)}`)
      .join(","),
};
/** @param {string} part */
function writePart(part) {
  return part.toWellFormed().replace(/[%,=]/g, encodeURIComponent);
}
/** @param {string} part */
function readPart(part) {
  return part.replaceAll("%3D", "=").replaceAll("%2C", ",").replaceAll("%25", "%");
}

/** How far back a range that ends now begins, in seconds. */
export const rangeLengths = { "15m": 900, "1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800 };
/** @typedef {keyof typeof rangeLengths} Span */

/**
 * A range that ends now, or one between two times of ISO 8601 in UTC.
 * @typedef {{ readonly last: Span } | { readonly from: string, readonly to: string }} Range
 */

const instant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/;

/** @param {string} written */
export function isInstant(written) {
  return instant.test(written) && !Number.isNaN(Date.parse(written));
}

/** @param {Span} last @returns {Parameter<Range>} */
function createRangeParameter(last) {
  return {
    initial: { last },
    read(written) {
      const [from = "", to = ""] = written.split("/");
      if (isInstant(from) && isInstant(to)) return { from, to };
      return isSpan(written) ? { last: written } : undefined;
    },
    write: (value) => ("last" in value ? value.last : `${value.from}/${value.to}`),
  };
}

/** @param {string} written @returns {written is Span} */
function isSpan(written) {
  return Object.hasOwn(rangeLengths, written);
}

/**
 * The times that a range means, to the second, so that a request can be sent again.
 * @param {Range} value
 * @param {number} now milliseconds since 1970
 */
export function resolveRange(value, now) {
  if ("from" in value) return value;
  const end = Math.ceil(now / 1_000) * 1_000;
  const print = (/** @type {number} */ at) => new Date(at).toISOString().replace(".000Z", "Z");
  return { from: print(end - rangeLengths[value.last] * 1_000), to: print(end) };
}

export const resolutions = /** @type {const} */ ([
  "AUTO",
  "MINUTELY",
  "FIVE_MINUTELY",
  "TEN_MINUTELY",
  "FIFTEEN_MINUTELY",
  "HOURLY",
  "DAILY",
]);
export const aggregations = /** @type {const} */ (["default", "sum", "avg", "min", "max", "first", "last"]);
export const chartStyles = /** @type {const} */ (["line", "area", "stacked"]);
/** The kinds of spans that a slow event may have: those that are no request. */
export const eventKinds = /** @type {const} */ (["client", "internal", "producer"]);
export const podStates = /** @type {const} */ ([
  "any",
  "Running",
  "Pending",
  "Failed",
  "Succeeded",
  "Unknown",
]);

const site = text;
/** The parameters of each view, in the order in which they are written. */
const views = {
  logs: {
    site,
    query: text,
    sources: names,
    range: createRangeParameter("1h"),
    order: createWordParameter("DESC", "ASC"),
    live: flag,
    columns: names,
    line: text,
  },
  traces: {
    site,
    kind: createWordParameter("performance", "errors"),
    query: text,
    namespace: text,
    action: text,
    min: millis,
    range: createRangeParameter("1h"),
    order: createWordParameter("newest", "slowest"),
    digest: text,
    below: millis,
  },
  trace: { site, id: text, span: text, open: text, other: text },
  metrics: {
    site,
    name: text,
    field: text,
    tags,
    aggregation: createWordParameter(...aggregations),
    resolution: createWordParameter(...resolutions),
    range: createRangeParameter("1h"),
    also: names,
    style: createWordParameter(...chartStyles),
    scale: createWordParameter("linear", "log"),
  },
  errors: { site, range: createRangeParameter("1h"), sort: text },
  actions: { site, range: createRangeParameter("1h"), sort: text },
  slow: {
    site,
    kind: createWordParameter("any", ...eventKinds),
    range: createRangeParameter("1h"),
    sort: text,
  },
  map: { site, range: createRangeParameter("1h") },
  deploys: { site, range: createRangeParameter("24h"), sort: text },
  visuals: { site, id: text },
  checkins: { site, schedule: text, zone: text },
  kubernetes: {
    site,
    query: text,
    state: createWordParameter(...podStates),
    range: createRangeParameter("15m"),
    pod: text,
  },
};

/** @typedef {keyof typeof views} ViewName */
/**
 * @template {ViewName} V
 * @typedef {{ readonly [K in keyof (typeof views)[V]]: (typeof views)[V][K] extends Parameter<infer T> ? T : never }} StateOf
 */
/** @typedef {{ [V in ViewName]: { readonly view: V, readonly state: StateOf<V> } }[ViewName]} Address */

/**
 * The table of a view, its parameters' types forgotten: each is only ever given what it has read itself.
 * @param {ViewName} view @returns {readonly (readonly [string, Parameter<any>])[]}
 */
function listParameters(view) {
  return Object.entries(views[view]);
}

/**
 * @template {ViewName} V
 * @param {V} view
 * @param {Partial<StateOf<V>>} [state] what is not at its default
 * @returns {string} from the `#` on
 */
export function printAddress(view, state = {}) {
  /** @type {Readonly<Record<string, unknown>>} */
  const given = state;
  const query = new URLSearchParams();
  for (const [name, { initial, write }] of listParameters(view)) {
    const written = write(given[name] ?? initial);
    if (written !== write(initial)) query.set(name, written);
  }
  return `#/${view}${query.size === 0 ? "" : `?${query}`}`;
}

/**
 * @param {string} hash with its `#`, or empty
 * @returns {Address} of the logs where no view is named
 */
export function readAddress(hash) {
  const [, named = "", search = ""] = /^#\/(\w+)(?:\?(.*))?$/s.exec(hash) ?? [];
  const view = isView(named) ? named : "logs";
  const query = new URLSearchParams(isView(named) ? search : "");
  const state = Object.fromEntries(
    listParameters(view).map(([name, { initial, read }]) => {
      const written = query.get(name);
      return [name, written === null ? initial : (read(written) ?? initial)];
    }),
  );
  return /** @type {Address} */ ({ view, state });
}

/**
 * Of what can be opened in a view, the one that was opened last is in its address.
 * @param {string} open the key that is in the address
 * @param {AbortSignal} signal of what is shown: what is taken down closes, too
 * @param {(open: string) => void} keep writes another key, empty for none
 * @returns {(key: string, isOpen: boolean) => void} told of everything that opens or closes
 */
export function trackLastOpened(open, signal, keep) {
  return (key, isOpen) => {
    if (signal.aborted || isOpen === (open === key)) return;
    open = isOpen ? key : "";
    keep(open);
  };
}

/** @param {string} name @returns {name is ViewName} */
function isView(name) {
  return Object.hasOwn(views, name);
}
