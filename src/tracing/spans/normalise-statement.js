// Normalises database statements: two are the same query when they differ in their values only. Plain JavaScript, because
// the console runs it too. There is no grammar, because statements come in the dialects of all databases, truncated,
// commented and partly masked by agents. The rules, in this order:
//
// 1. Comments (`/* … */`, `-- …`) are removed, and a run of white space becomes one space.
// 2. Values become `?`: texts in single quotes; whatever begins with a digit (`17`, `1.5e3`, `0xff`, `5f3a`), with its
//    sign after a bracket, a comma or a comparison; and the placeholders of prepared statements (`$1`, `:name`, `@p1`,
//    `%s`, `%(name)s`). Within braces or brackets (JSON), texts in double quotes are values too, except keys. Elsewhere
//    they are names, as are those in backticks, and stay as they are.
// 3. Letters outside quotes become lower case.
// 4. A list of values is one value: `(?, ?, ?)` becomes `(?)` and `[?, ?]` becomes `[?]`. Several such rows become one.

const tokens = [
  /(?<comment>\/\*[\s\S]*?(?:\*\/|$)|--(?=\s|$)[^\n]*)/u,
  /(?<space>\s+)/u,
  // A text that ends at a backslash counts: a token that can fail at its end would be retried at every quote in it.
  /(?<text>'(?:[^'\\]|''|\\[\s\S]|\\$)*(?:'|$))/u,
  /(?<quoted>"(?:[^"\\]|""|\\[\s\S]|\\$)*(?:"|$)|`[^`]*(?:`|$))/u,
  // A cast (`::int`) and the colon of a key (`user:name`) are not placeholders.
  /(?<plain>::)/u,
  /(?<place>%s|%\(\w+\)s|[$@]\w+|(?<![\w"'\])]):[A-Za-z_]\w*)/u,
  /(?<value>\p{N}[\p{L}\p{N}_]*(?:\.\p{N}[\p{L}\p{N}_]*)?(?:(?<=[eE])[+-]\p{N}+)?)/u,
  /(?<word>[\p{L}_][\p{L}\p{N}_$]*)/u,
  /(?<mark>[\s\S])/u,
];
const scanner = new RegExp(tokens.map(({ source }) => source).join("|"), "gu");

/**
 * The statement with its values masked: equal for all statements that are the same query.
 * @param {string} statement
 * @returns {string}
 */
export function normaliseStatement(statement) {
  /** @type {string[]} */
  const pieces = [];
  let depth = 0;
  for (const match of statement.matchAll(scanner)) {
    const piece = maskToken(match, statement, depth > 0);
    if (piece !== " " || pieces.at(-1) !== " ") pieces.push(piece);
    if (piece === "{" || piece === "[") depth += 1;
    else if (piece === "}" || piece === "]") depth = Math.max(0, depth - 1);
  }
  return pieces
    .join("")
    .replace(/([=<>(,[:]\s?)[+-]\s?\?/g, "$1?")
    .replace(/([([])\s?\?(?:\s?,\s?\?)*\s?([)\]])/g, "$1?$2")
    .replace(/\(\?\)(?:\s?,\s?\(\?\))+/g, "(?)")
    .trim();
}

/**
 * @param {RegExpExecArray} match
 * @param {string} statement
 * @param {boolean} isWithinJson
 * @returns {string}
 */
function maskToken(match, statement, isWithinJson) {
  const [token] = match;
  const { comment, space, text, quoted, place, value } = /** @type {Record<string, string | undefined>} */ (
    match.groups
  );
  if (comment !== undefined || space !== undefined) return " ";
  if (text !== undefined || place !== undefined || value !== undefined) return "?";
  if (quoted === undefined) return token.toLowerCase();
  const end = match.index + token.length;
  const isKey = /^\s*:/.test(statement.slice(end, end + 8));
  return isWithinJson && !isKey && token.startsWith('"') ? "?" : token;
}
