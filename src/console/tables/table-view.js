// A view that is one table of figures over a range: sorted by a click on a column, with a sparkline in each row that is
// filled in afterwards, piece by piece.
import { resolveRange } from "../base/address.js";
import { isAborted, readServerTime } from "../base/api.js";
import { createRangePicker, createSearchForm, createShareBar } from "../base/controls.js";
import { createButton, createElement, createTable, replaceChildren } from "../base/dom.js";
import { formatFirst, formatLongTime, formatRange, formatShortTime } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";
import { pieceCount, readPieces, splitRange } from "./pieces.js";
import { createSparkline } from "./sparkline.js";

/** @typedef {import("./pieces.js").Bounds} Bounds */
/** @typedef {import("../base/dom.js").Child} Child */
/** @typedef {{ readonly site: string, readonly range: import("../base/address.js").Range, readonly sort: string }} State */
/**
 * `sort` gives what rows are ordered by: texts from the first, numbers from the greatest on. The first column names the row.
 * @template R
 * @typedef {{
 *   readonly id: string, readonly title: string, readonly isFigure?: boolean, readonly sort?: (row: R) => number | string,
 *   readonly cell: (row: R, bounds: Bounds, signal: AbortSignal) => Child | readonly Child[],
 * }} TableColumn
 */
/**
 * `ask` reads the rows of a range, `countPiece` the counts of one piece of it by the rows' keys. Where each reads no more than
 * `limit`, `order` tells which rows these are, and `countAll` how many there are, as far as that can be asked.
 * @template R
 * @typedef {{
 *   readonly what: string, readonly many: string, readonly columns: readonly TableColumn<R>[], readonly initialSort: string,
 *   readonly controls?: readonly Element[], readonly nothing: string,
 *   readonly write?: (now: any) => void,
 *   readonly ask: (now: any, bounds: Bounds, signal: AbortSignal) => Promise<readonly R[]>,
 *   readonly share: (now: any, bounds: Bounds) => Parameters<ReturnType<typeof createShareBar>["write"]>,
 *   readonly key: (row: R) => string, readonly limit?: number, readonly order?: string,
 *   readonly countAll?: (now: any, bounds: Bounds, signal: AbortSignal) => Promise<number>,
 *   readonly countPiece?: (now: any, piece: Bounds, signal: AbortSignal) => Promise<ReadonlyMap<string, number>>,
 * }} TableOptions
 */

/**
 * A column of numbers, by which the rows are ordered as well.
 * @template R
 * @param {string} id @param {string} title
 * @param {(row: R) => number} read @param {(value: number) => string} format
 * @returns {TableColumn<R>}
 */
export function createFigureColumn(id, title, read, format) {
  return { id, title, isFigure: true, sort: read, cell: (row) => format(read(row)) };
}

/**
 * @template R
 * @param {(state: any) => void} go
 * @param {TableOptions<R>} options
 */
export function createTableView(go, options) {
  /** @type {State | undefined} */
  let state;
  const change = (/** @type {object} */ part) => state !== undefined && go({ ...state, ...part });
  const range = createRangePicker((value) => change({ range: value }));
  const share = createShareBar();
  const statusLine = createElement("p", { class: "status-line", role: "status" });
  const body = createElement("div");
  const form = createSearchForm(() => change({}), range.root, ...(options.controls ?? []));
  const root = createElement(
    "div",
    {},
    form,
    createElement("div", { class: "bar" }, statusLine, share.root),
    body,
  );

  return { root, change, show };

  /** @param {State} now @param {AbortSignal} signal */
  async function show(now, signal) {
    state = now;
    range.write(now.range);
    options.write?.(now);
    const bounds = resolveRange(now.range, readServerTime());
    share.write(...options.share(now, bounds));
    replaceChildren(statusLine);
    replaceChildren(body, createLoadingState(options.many));
    try {
      const rows = await options.ask(now, bounds, signal);
      const { what, many, limit = Number.POSITIVE_INFINITY, order = "" } = options;
      const total = rows.length < limit ? rows.length : await options.countAll?.(now, bounds, signal);
      const count = formatFirst(rows.length, total, order, what, many);
      replaceChildren(statusLine, `${count}, ${formatRange(bounds.from, bounds.to)}`);
      if (rows.length === 0)
        return replaceChildren(body, createEmptyState(`No ${options.many}`, options.nothing));
      const lines = rows.map((row) => ({ row, spark: createElement("span", { class: "spark" }) }));
      drawTable(body, lines, now, bounds, signal, options, (sort) => change({ sort }));
      void fillSparklines(lines, now, bounds, signal, options);
    } catch (error) {
      if (!isAborted(error))
        replaceChildren(
          body,
          createFailureState(error, () => void show(now, signal)),
        );
    }
  }
}

/**
 * @template R
 * @param {HTMLElement} root
 * @param {readonly { readonly row: R, readonly spark: HTMLElement }[]} lines
 * @param {State} now @param {Bounds} bounds @param {AbortSignal} signal
 * @param {TableOptions<R>} options @param {(sort: string) => void} sortBy
 */
function drawTable(root, lines, now, bounds, signal, options, sortBy) {
  const { columns, initialSort, many, countPiece } = options;
  const chosen = columns.find(({ id }) => id === (now.sort || initialSort));
  const sorted = lines.toSorted((a, b) => compareBy(chosen, a.row, b.row));
  const heads = columns.map((column) => {
    const shape = { scope: "col", class: column.isFigure === true ? "figure" : "" };
    const isSorted = column === chosen;
    const direction = column.isFigure === true ? "descending" : "ascending";
    return createElement(
      "th",
      { ...shape, "aria-sort": isSorted ? direction : undefined },
      column.sort === undefined
        ? column.title
        : createButton(column.title, () => sortBy(column.id), { class: "sort" }),
    );
  });
  if (countPiece !== undefined) heads.push(createElement("th", { scope: "col" }, "Over time"));
  const rows = sorted.map(({ row, spark }) => {
    const cells = columns.map((column, at) => {
      const content = [column.cell(row, bounds, signal)].flat();
      return at === 0
        ? createElement("th", { scope: "row" }, content)
        : createElement("td", { class: column.isFigure === true ? "figure" : "" }, content);
    });
    return countPiece === undefined ? cells : [...cells, createElement("td", {}, spark)];
  });
  const name = many.charAt(0).toUpperCase() + many.slice(1);
  replaceChildren(root, createTable(name, heads, rows, { shape: "figures" }));
}

/** @param {string} time */
export function createTimeCell(time) {
  return createElement("time", { datetime: time, title: formatLongTime(time) }, formatShortTime(time));
}

/** @template R @param {TableColumn<R> | undefined} column @param {R} a @param {R} b */
function compareBy(column, a, b) {
  const [one, other] = [column?.sort?.(a) ?? 0, column?.sort?.(b) ?? 0];
  if (one === other) return 0;
  if (typeof one === "number" && typeof other === "number") return other - one;
  return one < other ? -1 : 1;
}

/**
 * Does nothing in a table whose rows have no counts over time.
 * @template R
 * @param {readonly { readonly row: R, readonly spark: HTMLElement }[]} lines
 * @param {State} now @param {Bounds} bounds @param {AbortSignal} signal @param {TableOptions<R>} options
 */
async function fillSparklines(
  lines,
  now,
  bounds,
  signal,
  { countPiece, key, limit = Number.POSITIVE_INFINITY },
) {
  if (countPiece === undefined) return;
  try {
    const pieces = splitRange(bounds, pieceCount);
    const counts = await readPieces(pieces, (piece) => countPiece(now, piece, signal));
    for (const { row, spark } of lines) {
      // What a piece without room for it lacks may be in it.
      const isKnown = counts.every((piece) => piece.size < limit || piece.has(key(row)));
      replaceChildren(
        spark,
        isKnown ? createSparkline(counts.map((piece) => piece.get(key(row)) ?? 0)) : "–",
      );
    }
  } catch (error) {
    if (isAborted(error)) return;
    // The figures stand without it.
    const reason = error instanceof Error ? error.message : "";
    for (const { spark } of lines)
      replaceChildren(spark, createElement("span", { title: reason }, "not counted"));
  }
}
