// How a query may go on at the cursor: by a field, by an operator behind one, or by a value behind that.
import { printValue } from "./query.js";
import { readTerms } from "./tokens.js";

/**
 * What is being typed, and which part of the query a choice takes the place of: up to `end`, and up to `signEnd` if the choice
 * has an operator.
 * @typedef {{
 *   readonly kind: "field" | "operator" | "value", readonly start: number, readonly end: number, readonly signEnd: number,
 *   readonly typed: string, readonly field: string,
 * }} Place
 */
/**
 * `text` is written into the query, `isSigned` if it ends with an operator; `hint` says more of it.
 * @typedef {{ readonly text: string, readonly label: string, readonly hint?: string, readonly isSigned?: boolean }} Suggestion
 */

const operators = {
  "=": "is exactly",
  "!=": "is not, or is missing",
  ":": "contains",
  "!:": "does not contain",
  ">": "is greater than",
  ">=": "is at least",
  "<": "is less than",
  "<=": "is at most",
};
const maxSuggestions = 12;

/** @param {string} query @param {number} cursor @returns {Place} */
export function locateCompletion(query, cursor) {
  /** @type {(kind: Place["kind"], start: number, end: number, more?: Partial<Place>) => Place} */
  const place = (kind, start, end, more) => ({
    kind,
    start,
    end,
    signEnd: end,
    typed: "",
    field: "",
    ...more,
  });
  const term = readTerms(query).find(({ field, value }) => {
    const start = field?.start ?? value?.start ?? 0;
    return start <= cursor && cursor <= (value?.end ?? 0);
  });
  if (term === undefined) return place("field", cursor, cursor);
  const { field, operator, value = { start: cursor, end: cursor, text: "" } } = term;
  if (field === undefined || operator === undefined)
    return place("field", value.start, value.end, { typed: query.slice(value.start, cursor) });
  if (cursor <= field.end) {
    const typed = query.slice(field.start, cursor);
    return place("field", field.start, field.end, { typed, signEnd: operator.end });
  }
  if (cursor < value.start) return place("operator", operator.start, operator.end, { field: field.text });
  const typed = query.slice(value.start, cursor).replace(/^"/, "");
  return place("value", value.start, value.end, { typed, field: field.text });
}

/**
 * @param {Place} place
 * @param {readonly string[]} fields as queries spell them
 * @returns {readonly Suggestion[]} those that begin with what is typed, before those that only contain it
 */
export function suggestFields({ kind, typed, field }, fields) {
  if (kind === "operator") return suggestOperators(field);
  if (fields.includes(typed)) return suggestOperators(typed);
  return rank(fields, typed).map((name) => ({ text: name, label: name }));
}

/** @param {string} field */
function suggestOperators(field) {
  return Object.entries(operators).map(([sign, hint]) => ({
    text: `${field}${sign}`,
    label: `${field}${sign}`,
    hint,
    isSigned: true,
  }));
}

/**
 * @param {Place} place
 * @param {readonly { readonly value: string, readonly count?: number }[]} values the largest first
 * @returns {readonly Suggestion[]}
 */
export function suggestValues({ typed }, values) {
  const counts = new Map(values.map(({ value, count }) => [value, count]));
  return rank([...counts.keys()], typed).map((value) => {
    const count = counts.get(value);
    return { text: printValue(value), label: value, ...(count === undefined ? {} : { hint: String(count) }) };
  });
}

/** @param {readonly string[]} all @param {string} typed */
function rank(all, typed) {
  const sought = typed.toLowerCase();
  const places = all.map((one) => ({ one, at: one.toLowerCase().indexOf(sought) }));
  return places
    .filter(({ at }) => at !== -1)
    .sort((a, b) => Number(a.at > 0) - Number(b.at > 0))
    .slice(0, maxSuggestions)
    .map(({ one }) => one);
}

/**
 * The query with a choice in its place, and where the cursor is then.
 * @param {string} query @param {Place} place @param {Suggestion} chosen
 */
export function applySuggestion(query, { kind, start, end, signEnd, field }, { text, isSigned }) {
  const from = kind === "operator" ? start - field.length : start;
  const before = query.slice(0, from) + text;
  return { query: before + query.slice(isSigned === true ? signEnd : end), cursor: before.length };
}
