// Terms of the log query language, written so that its parser reads back exactly the field and the value meant. The
// rules are those of docs/reference/log-query-language.md; the tests hold this file to the parser itself.

/** Names that mean a field of the line when they stand alone. */
const lineFields = ["message", "severity", "hostname", "group"];
/** What would end a key or a field, or escape something in it. A `!` is one only before what makes it an operator. */
const special = /[.\\ \t\n\r()"=:<>]|!(?![^=:])/g;
/** What a backslash takes the meaning from. */
const escapable = ' \t\n\r().\\"=:!<>';
const typeSuffix = /_(?:string|int|float|bool)$/;
/** A NUL and half a surrogate pair are no text of the language. */
const unsearchable = /[\0\p{Surrogate}]/u;

/** @typedef {"=" | "!=" | ":" | "!:"} Operator */

/**
 * A comparison of a value in the line's body.
 * @param {readonly string[]} path keys and indices from the root
 * @param {Operator} operator
 * @param {string} value
 * @returns {string | undefined} undefined where the language has no words for it
 */
export function printTerm(path, operator, value) {
  const isNameless = path.length === 1 && path[0] === "";
  if (isNameless || unsearchable.test(value) || path.some((key) => unsearchable.test(key))) return undefined;
  return `${printPath(path)}${operator}${printValue(value)}`;
}

/**
 * A comparison of one of the line's own fields, or of a name of the trace query language.
 * @param {string} name @param {Operator} operator @param {string} value
 */
export function printFieldTerm(name, operator, value) {
  return unsearchable.test(value) ? undefined : `${name}${operator}${printValue(value)}`;
}

/**
 * A comparison of a trace's tag; all after `tag.` is its name.
 * @param {string} name @param {Operator} operator @param {string} value
 */
export function printTagTerm(name, operator, value) {
  if (name === "" || unsearchable.test(name)) return undefined;
  return printFieldTerm(`tag.${name.split(".").map(escapeKey).join(".")}`, operator, value);
}

/**
 * A path of the body as a query spells it.
 * @param {readonly string[]} path keys from the root
 */
export function printPath(path) {
  return path
    .map((key, at) => {
      const isLast = at === path.length - 1;
      const meansMore =
        (path.length === 1 && lineFields.includes(key)) ||
        (at === 0 && !isLast && key === "attributes") ||
        (isLast && typeSuffix.test(key) && !escapeKey(key).startsWith("\\"));
      return meansMore ? `\\${escapeKey(key)}` : escapeKey(key);
    })
    .join(".");
}

/**
 * The path that `printPath` spells so.
 * @param {string} spelling @returns {readonly string[]}
 */
export function readPath(spelling) {
  const keys = [""];
  for (let at = 0; at < spelling.length; at += 1) {
    const [character = "", next = ""] = [spelling[at], spelling[at + 1]];
    const last = keys.length - 1;
    if (character === ".") keys.push("");
    else if (character !== "\\") keys[last] += character;
    else if (escapable.includes(next) && next !== "") {
      keys[last] += next;
      at += 1;
    }
    // Any other backslash keeps a key from meaning more than itself.
  }
  return keys;
}

/** @param {string} key */
function escapeKey(key) {
  return key.replace(special, "\\$&");
}

/** A value as it stands behind an operator. @param {string} value */
export function printValue(value) {
  return /^$|^["[]|[ \t\n\r()]/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
}

/**
 * The query with one more condition.
 * @param {string} query @param {string} term
 */
export function addTerm(query, term) {
  const rest = trim(query);
  if (rest === "" || rest === term) return term;
  // OR binds less than the space that joins; the same letters elsewhere only cost needless parentheses.
  return /\bOR\b/.test(rest) ? `(${rest}) ${term}` : `${rest} ${term}`;
}

/**
 * Without the white space of the language around it; other kinds, which `String.trim` takes too, are part of a value.
 * @param {string} query
 */
function trim(query) {
  let [from, to] = [0, query.length];
  while (from < to && isSpace(query[from])) from += 1;
  while (from < to && isSpace(query[to - 1])) to -= 1;
  return query.slice(from, to);
}

/** @param {string | undefined} char */
function isSpace(char) {
  return char === " " || char === "\t" || char === "\n" || char === "\r";
}
