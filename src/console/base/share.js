// A request of this page as others may send it: as a line for a shell, and as a query for GraphiQL. Neither has the
// token in it.

/**
 * @typedef {{ readonly method: "GET" | "POST", readonly path: string, readonly body?: Readonly<Record<string, unknown>> }} Request
 */
/**
 * A field of GraphQL's `Query`. Arguments in `variables` have names that a literal could not spell.
 * @typedef {{
 *   readonly field: string, readonly selection: string,
 *   readonly variables?: Readonly<Record<string, { readonly type: string, readonly value: unknown }>>,
 *   readonly arguments: Readonly<Record<string, unknown>>,
 * }} Field
 */

/** @param {string} origin @param {Request} request */
export function printCurl(origin, { method, path, body }) {
  const parts = [`curl -sS ${quoteForShell(origin + path)}`, '-H "Authorization: Bearer $TOKEN"'];
  if (method === "POST")
    parts.push("-H 'Content-Type: application/json'", `-d ${quoteForShell(JSON.stringify(body))}`);
  return parts.join(" \\\n  ");
}

/** For a POSIX shell, which ends no single quote but at the next. @param {string} text */
function quoteForShell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Arguments whose values are words of an enumeration. */
const enumerations = new Set(["order", "state", "resolution", "span_kind"]);

/** @param {Field} field */
export function printGraphql({ field, selection, arguments: given, variables = {} }) {
  const declared = Object.entries(variables).map(([name, { type }]) => `$${name}: ${type}`);
  const written = [
    ...Object.entries(given)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name}: ${printValue(value, name)}`),
    ...Object.keys(variables).map((name) => `${name}: $${name}`),
  ];
  const opening = declared.length === 0 ? "" : `query (${declared.join(", ")}) `;
  return `${opening}{\n  ${field}(\n    ${written.join("\n    ")}\n  ) {\n    ${selection.replaceAll("\n", "\n    ")}\n  }\n}\n`;
}

/** @param {unknown} value @param {string} name @returns {string} */
function printValue(value, name) {
  if (Array.isArray(value)) return `[${value.map((one) => printValue(one, name)).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, one]) => one !== undefined);
    return `{ ${entries.map(([key, one]) => `${key}: ${printValue(one, key)}`).join(", ")} }`;
  }
  // JSON's escapes are GraphQL's, but for what GraphQL wants escaped and JSON leaves.
  return typeof value === "string" && enumerations.has(name)
    ? value
    : JSON.stringify(value).replace(/\u007f/g, "\\u007f");
}

/** A query of GraphQL that is one already. @typedef {{ readonly query: string, readonly values: Readonly<Record<string, unknown>> }} Query */

/** The address of GraphiQL with a query in it. @param {Field | Query} asked */
export function printGraphiqlAddress(asked) {
  if ("query" in asked) return printEditorAddress(asked.query, asked.values);
  const values = Object.entries(asked.variables ?? {}).map(([name, { value }]) => [name, value]);
  return printEditorAddress(printGraphql(asked), Object.fromEntries(values));
}

/** @param {string} query @param {Readonly<Record<string, unknown>>} values of its variables */
function printEditorAddress(query, values) {
  const search = new URLSearchParams({ query });
  if (Object.keys(values).length > 0) search.set("variables", JSON.stringify(values, null, 2));
  return `/graphql?${search}`;
}
