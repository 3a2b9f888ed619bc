// A query in pieces, as its parser reads it, but without an end: what is still being typed is read, too. The tests hold it
// to the parser: of each query that has a meaning, both find the same comparisons.

/**
 * `keys` are those of a field as they are written, without its escapes. A `value` is unquoted. A bare term is a value
 * without a field. Places are UTF-16 units of the query, half-open.
 * @typedef {{
 *   readonly field?: { readonly start: number, readonly end: number, readonly text: string },
 *   readonly operator?: { readonly start: number, readonly end: number, readonly text: string },
 *   readonly value?: { readonly start: number, readonly end: number, readonly text: string },
 * }} Term
 */

const operator = /!=|!:|>=|<=|[=:<>]/y;
/** What a backslash in a field takes the meaning from. */
const escapable = ' \t\n\r().\\"=:!<>';

/** @param {string | undefined} character */
function isTermEnd(character) {
  return character === undefined || " \t\n\r()".includes(character);
}

/**
 * The terms of a query, from left to right. Parentheses and the words AND and OR are between them.
 * @param {string} query
 * @returns {readonly Term[]}
 */
export function readTerms(query) {
  /** @type {Term[]} */
  const terms = [];
  let at = 0;
  while (at < query.length) {
    const connective = /(?:AND|OR)(?=[ \t\n\r()]|$)/y;
    connective.lastIndex = at;
    if (isTermEnd(query[at])) at += 1;
    else if (connective.test(query)) at = connective.lastIndex;
    else {
      const { term, end } = readTerm(query, at);
      terms.push(term);
      at = Math.max(end, at + 1);
    }
  }
  return terms;
}

/** @param {string} query @param {number} start @returns {{ readonly term: Term, readonly end: number }} */
function readTerm(query, start) {
  const field = query[start] === '"' ? undefined : readField(query, start);
  if (field === undefined) {
    const value = readValue(query, start);
    return { term: { value }, end: value.end };
  }
  operator.lastIndex = field.end;
  const [sign = ""] = operator.exec(query) ?? [];
  const end = field.end + sign.length;
  const value = readValue(query, end);
  return { term: { field, operator: { start: field.end, end, text: sign }, value }, end: value.end };
}

/** Up to the first operator; undefined where the term ends before one. @param {string} query @param {number} start */
function readField(query, start) {
  for (let at = start; !isTermEnd(query[at]); at += 1) {
    if (query[at] === "\\" && at + 1 < query.length && escapable.includes(query[at + 1] ?? "")) at += 1;
    else {
      operator.lastIndex = at;
      if (operator.test(query)) return { start, end: at, text: query.slice(start, at) };
    }
  }
  return undefined;
}

/** @param {string} query @param {number} start */
function readValue(query, start) {
  if (query[start] !== '"') {
    let end = start;
    while (!isTermEnd(query[end])) end += 1;
    return { start, end, text: query.slice(start, end) };
  }
  let text = "";
  let end = start + 1;
  for (; end < query.length && query[end] !== '"'; end += 1) {
    const isEscape = query[end] === "\\" && /["\\]/.test(query[end + 1] ?? "");
    if (isEscape) end += 1;
    text += query[end];
  }
  return { start, end: Math.min(end + 1, query.length), text };
}

/** The texts that a matching message has to hold somewhere. @param {string} query @returns {readonly string[]} */
export function listSoughtTexts(query) {
  return readTerms(query).flatMap(({ field, operator: sign, value }) => {
    const isInMessage = field === undefined || (field.text === "message" && /^[=:]$/.test(sign?.text ?? ""));
    return isInMessage && value !== undefined && value.text !== "" ? [value.text] : [];
  });
}
