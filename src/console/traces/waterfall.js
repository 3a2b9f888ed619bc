// Where each span of a trace stands: a tree drawn over time. Spans come in any shape that broken instrumentation gives
// them (lost parents, parents that name each other, ends before starts), and every one is shown once.

/**
 * A span as the API answers it, as far as it is used here.
 * @typedef {{
 *   readonly trace_id: string, readonly span_id: string, readonly parent_span_id: string, readonly site_id: string,
 *   readonly start_time: string, readonly end_time: string, readonly duration: number,
 *   readonly span_name: string, readonly service_name: string, readonly span_kind: string,
 *   readonly status_code: string, readonly status_message: string, readonly subtrace_root: boolean,
 *   readonly namespace: string, readonly action_name: string, readonly revision: string,
 *   readonly scope_name: string, readonly scope_version: string, readonly trace_state: string,
 *   readonly span_attributes: Readonly<Record<string, unknown>>,
 *   readonly resource_attributes: Readonly<Record<string, unknown>>,
 *   readonly "events.timestamp": readonly string[], readonly "events.name": readonly string[],
 *   readonly "events.attributes": readonly Readonly<Record<string, unknown>>[],
 *   readonly "links.trace_id": readonly string[], readonly "links.span_id": readonly string[],
 * }} Span
 */
/**
 * `offset` and `width` are parts of the whole trace, from 0 to 1. `repeated` is how many sibling spans ask the same,
 * where that makes an N+1.
 * @typedef {{
 *   readonly span: Span, readonly depth: number, readonly offset: number, readonly width: number,
 *   readonly failed: boolean, readonly repeated: number | undefined,
 * }} Row
 */
/** @typedef {{ readonly rows: readonly Row[], readonly length: number }} Waterfall `length` in milliseconds */

const statementNames = ["db.query.text", "db.statement", "sql.query"];
/** So many equal sibling queries make an N+1: the API's own bound. */
const npoThreshold = 5;

/**
 * @param {readonly Span[]} spans
 * @param {(statement: string) => string} normalise as the server masks the values of a statement
 * @returns {Waterfall} parents before their children, siblings by start
 */
export function buildWaterfall(spans, normalise) {
  const timed = spans
    .map((span) => ({ span, start: parseMillis(span.start_time), end: parseMillis(span.end_time) }))
    .sort((a, b) => a.start - b.start || (a.span.span_id < b.span.span_id ? -1 : 1));
  const start = timed[0]?.start ?? 0;
  const length = timed.reduce((longest, { end }) => Math.max(longest, end - start), 0);
  const children = Map.groupBy(timed, ({ span }) => span.parent_span_id);
  const ids = new Set(spans.map(({ span_id }) => span_id));
  const repeated = countRepeated(spans, normalise);

  /** @type {Row[]} */
  const rows = [];
  const shown = new Set();
  /** A stack and no recursion: a trace may be a chain of 50,000. @param {typeof timed} roots */
  const showAll = (roots) => {
    const open = roots.map((one) => ({ one, depth: 0 })).reverse();
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const { one, depth } = next;
      if (shown.has(one)) continue;
      shown.add(one);
      const { span } = one;
      rows.push({
        span,
        depth,
        offset: length === 0 ? 0 : (one.start - start) / length,
        width: length === 0 ? 1 : Math.max(0, one.end - one.start) / length,
        failed: span.status_code === "ERROR" || span["events.name"].includes("exception"),
        repeated: repeated.get(span),
      });
      const below = span.span_id === "" ? [] : (children.get(span.span_id) ?? []);
      open.push(...below.map((child) => ({ one: child, depth: depth + 1 })).reverse());
    }
  };
  showAll(timed.filter(({ span }) => !ids.has(span.parent_span_id)));
  // What is left hangs on itself.
  for (const one of timed) if (!shown.has(one)) showAll([one]);
  return { rows, length };
}

/** Milliseconds since 1970, with what the source has below them. @param {string} time */
function parseMillis(time) {
  const digits = /\.\d{3}(\d+)/.exec(time)?.[1] ?? "";
  return Date.parse(time.replace(/(\.\d{3})\d+/, "$1")) + Number(`0.${digits}0`);
}

/**
 * The spans of each N+1, with how many they are.
 * @param {readonly Span[]} spans
 * @param {(statement: string) => string} normalise
 * @returns {ReadonlyMap<Span, number>}
 */
function countRepeated(spans, normalise) {
  const asked = spans.flatMap((span) => {
    const statement = findStatement(span);
    return span.span_kind !== "client" || span.parent_span_id === "" || statement === undefined
      ? []
      : [
          {
            span,
            count: readCount(span),
            key: `${span.site_id} ${span.parent_span_id} ${normalise(statement)}`,
          },
        ];
  });
  const counts = new Map();
  for (const group of Map.groupBy(asked, ({ key }) => key).values()) {
    const count = group.reduce((sum, one) => sum + one.count, 0);
    if (count >= npoThreshold) for (const { span } of group) counts.set(span, count);
  }
  return counts;
}

/** @param {Span} span */
export function findStatement({ span_attributes }) {
  for (const name of statementNames) {
    const value = Object.hasOwn(span_attributes, name) ? span_attributes[name] : undefined;
    if (typeof value === "string") return value;
  }
  return undefined;
}

/** How many equal spans a compressed one stands for. @param {Span} span */
function readCount({ span_attributes }) {
  const count = span_attributes["span.composite.count"];
  return typeof count === "number" && count > 1 ? count : 1;
}
