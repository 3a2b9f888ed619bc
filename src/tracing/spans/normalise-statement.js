// Plain JavaScript, because the console runs it too. Two statements are the same query when they differ in their values
// alone. There is no grammar here, because statements come in the dialects of all databases, cut short, commented and
// half masked by agents. What is done, in this order:
//
// 1. Comments (`/* … */`, `-- …`) go, and a run of white space is one space.
// 2. Values become `?`: texts in single quotes; whatever begins with a digit (`17`, `1.5e3`, `0xff`, `5f3a`), with its
//    sign after a bracket, a comma or a comparison; and the places of prepared values (`$1`, `:name`, `@p1`, `%s`,
//    `%(name)s`). Within braces or brackets (JSON) texts in double quotes are values too, but for keys; elsewhere they
//    are names, as are those in backticks, and stay as they are.
// 3. Letters outside quotes are written small.
// 4. A list of values is one value: `(?, ?, ?)` is `(?)` and `[?, ?]` is `[?]`; and several such rows are one row.

const tokens = [
  /(?<comment>\/\*[\s\S]*?(?:\*\/|$)|--(?=\s|$)[^\n]*)/u,
  /(?<space>\s+)/u,
  // Also one that is cut at a backslash: a token that could fail at its end would be tried again at every quote in it.
  /(?<text>'(?:[^'\\]|''|\\[\s\S]|\\$)*(?:'|$))/u,
  /(?<quoted>"(?:[^"\\]|""|\\[\s\S]|\\$)*(?:"|$)|`[^`]*(?:`|$))/u,
  // A cast (`::int`) and a key's own colon (`user:name`) are no places.
  /(?<plain>::)/u,
  /(?<place>%s|%\(\w+\)s|[$@]\w+|(?<![\w"'\])]):[A-Za-z_]\w*)/u,
  /(?<value>\p{N}[\p{L}\p{N}_]*(?:\.\p{N}[\p{L}\p{N}_]*)?(?:(?<=[eE])[+-]\p{N}+)?)/u,
  /(?<word>[\p{L}_][\p{L}\p{N}_$]*)/u,
  /(?<mark>[\s\S])/u,
];
const scanner = new RegExp(tokens.map(({ source }) => source).join("|"), "gu");

/**
 * The statement with its values masked; the same for every statement that asks the same.
 * @param {string} statement
 * @returns {string}
 */
export function normaliseStatement(statement) {
  /** @type {string[]} */
  const pieces = [];
  let depth = 0;
  for (const match of statement.matchAll(scanner)) {
    const { comment, space, text, quoted, place, value } = match.groups ?? {};
    const [token] = match;
    if (comment !== undefined || space !== undefined) {
      if (pieces.at(-1) !== " ") pieces.push(" ");
    } else if (text !== undefined || place !== undefined || value !== undefined) {
      pieces.push("?");
    } else if (quoted !== undefined) {
      const end = match.index + token.length;
      const isKey = /^\s*:/.test(statement.slice(end, end + 8));
      pieces.push(depth > 0 && !isKey && token.startsWith('"') ? "?" : token);
    } else {
      if (token === "{" || token === "[") depth += 1;
      else if (token === "}" || token === "]") depth = Math.max(0, depth - 1);
      pieces.push(token.toLowerCase());
    }
  }
  return pieces
    .join("")
    .replace(/([=<>(,[:]\s?)[+-]\s?\?/g, "$1?")
    .replace(/([([])\s?\?(?:\s?,\s?\?)*\s?([)\]])/g, "$1?$2")
    .replace(/\(\?\)(?:\s?,\s?\(\?\))+/g, "(?)")
    .trim();
}
