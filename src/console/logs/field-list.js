// The fields beside the lines. A field opens as its largest values with how many lines have them, counted by the API over
// the whole range; a value narrows the query, and a field of the body may be a column.
import { buildPost, isAborted, requestJson } from "../base/api.js";
import {
  createButton,
  createElement,
  createHiddenText,
  renderUntrusted,
  replaceChildren,
} from "../base/dom.js";
import { formatCount, formatNumber } from "../base/format.js";
import { printFieldTerm, printTerm } from "../search/query.js";
import { chooseListedFields, lineFields } from "./field-paths.js";

/** @typedef {import("./log-line.js").Line} Line */
/** @typedef {{ readonly value: string, readonly count: number }} Group */
/** @typedef {{ readonly total: number, readonly groups: readonly Group[] | null, readonly other: number | null, readonly lacking: number | null }} Counts */
/** @typedef {(spelling: string) => Promise<Counts>} ValueCounter */
/** @typedef {{ readonly spelling: string, readonly path?: readonly string[] }} Field */

const maxValues = 10;

/**
 * Asks for the largest values of fields, each once for one search.
 * @param {object} request of the lines, with its range
 * @param {AbortSignal} signal
 * @returns {ValueCounter}
 */
export function createValueCounter(request, signal) {
  /** @type {Map<string, Promise<Counts>>} */
  const asked = new Map();
  return (spelling) => {
    const body = { ...request, group_by: spelling, limit: maxValues };
    const answer = asked.get(spelling) ?? requestJson(buildPost("logs/counts", body), signal);
    asked.set(spelling, /** @type {Promise<Counts>} */ (answer));
    // What failed may be asked again.
    answer.catch(() => asked.delete(spelling));
    return /** @type {Promise<Counts>} */ (answer);
  };
}

/**
 * What a list shows, and what a click in it does. `lines` are those that tell which fields there are.
 * @typedef {{
 *   readonly lines: readonly Line[], readonly columns: readonly string[], readonly count: ValueCounter,
 *   readonly narrow: (term: string) => void, readonly chooseSource: (source: string) => void,
 *   readonly toggleColumn: (spelling: string) => void,
 * }} FieldList
 */

/** @param {FieldList} list */
export function createFieldList(list) {
  const { fields: ofBodies, left } = chooseListedFields(list.lines);
  /** @type {readonly Field[]} */
  const fields = [...lineFields.map((spelling) => ({ spelling })), ...ofBodies];
  return [
    createElement(
      "ul",
      { class: "fields" },
      fields.map((field) => createElement("li", {}, createFieldEntry(list, field))),
    ),
    left > 0 &&
      createElement(
        "p",
        { class: "muted" },
        `Further fields, not listed: ${formatNumber(left)}. A query may name them.`,
      ),
  ];
}

/** @param {FieldList} list @param {Field} field */
function createFieldEntry(list, field) {
  const { spelling, path } = field;
  const isColumn = list.columns.includes(spelling);
  const values = createElement("div");
  const summary = createElement("summary", {}, renderUntrusted(spelling));
  const details = createElement("details", {}, summary, values);
  details.addEventListener("toggle", () => {
    if (details.open && values.childElementCount === 0) void showValues(list, field, values);
  });
  const column =
    path !== undefined &&
    createButton(
      isColumn ? `Take the column ${spelling} away` : `Show ${spelling} as a column`,
      () => list.toggleColumn(spelling),
      { class: "column-switch", "aria-pressed": String(isColumn) },
      "▥",
    );
  return createElement("div", { class: "field-entry" }, details, column);
}

/** @param {FieldList} list @param {Field} field @param {HTMLElement} root */
async function showValues(list, field, root) {
  replaceChildren(root, createElement("p", { class: "muted" }, "Counting…"));
  try {
    const { total, groups, other, lacking } = await list.count(field.spelling);
    const most = groups?.[0]?.count ?? 1;
    const rest = [
      (other ?? 0) > 0 && `${formatNumber(other ?? 0)} of other values`,
      (lacking ?? 0) > 0 && `${formatCount(lacking ?? 0, "line")} without it`,
      `of ${formatCount(total, "line")}`,
    ].filter((text) => text !== false);
    replaceChildren(
      root,
      createElement(
        "ul",
        { class: "field-values" },
        (groups ?? []).map((group) => createValue(list, field, group, group.count / most)),
      ),
      createElement("p", { class: "muted" }, rest.join(", ")),
    );
  } catch (error) {
    if (isAborted(error)) return;
    const retry = createButton("Count again", () => void showValues(list, field, root));
    const message = error instanceof Error ? error.message : "";
    replaceChildren(root, createElement("p", { class: "muted" }, message), retry);
  }
}

/** @param {FieldList} list @param {Field} field @param {Group} group @param {number} part of the largest one */
function createValue({ narrow, chooseSource }, { spelling, path }, { value, count }, part) {
  const print = (/** @type {"=" | "!="} */ operator) =>
    path === undefined ? printFieldTerm(spelling, operator, value) : printTerm(path, operator, value);
  const isSource = spelling === "source";
  const [only, without] = isSource ? [undefined, undefined] : [print("="), print("!=")];
  const bar = createElement("span", { class: "field-bar" });
  bar.style.inlineSize = `${(part * 100).toFixed(1)}%`;
  const brief = value.slice(0, 60);
  const act = () => {
    if (isSource) chooseSource(value);
    else if (only !== undefined) narrow(only);
  };
  const choice = createElement(
    "button",
    { type: "button", class: "field-value", disabled: !isSource && only === undefined },
    bar,
    createElement(
      "span",
      { class: "field-text" },
      createHiddenText(`Only where ${spelling} is `),
      value === "" ? '""' : renderUntrusted(value),
    ),
    createElement("span", { class: "field-count" }, formatNumber(count)),
  );
  choice.addEventListener("click", act);
  return createElement(
    "li",
    {},
    choice,
    without !== undefined &&
      createButton(`Without those where ${spelling} is ${brief}`, () => narrow(without), {}, "≠"),
  );
}
