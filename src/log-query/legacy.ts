// The wider grammar, for clients that do not send `use_expressions: true`: all of the language, and bracket lists, an
// `attributes.` prefix and a type suffix, both optional. None of them reaches a store as such: a list is an `or` (an
// `and` for the negative operators), and a prefixed or suffixed name is a path with alternatives.
import type { Field, Path, SourceSpan } from "./ast.ts";
import { hasGuardedKey, isLegacyField, toField, typeSuffix } from "./field.ts";
import { createSyntaxError, isSpace, isTermEnd, scanQuoted, scanWord, skipSpaces } from "./scan.ts";

interface ListElement {
  readonly value: string;
  readonly span: SourceSpan;
}

interface List {
  readonly elements: readonly [ListElement, ...ListElement[]];
  readonly end: number;
}

/**
 * The field that keys as written mean in the wider grammar. Contract: "a key really spelt so wins", so the least
 * stripped path comes first: as written, without prefix, without suffix, without both. Attributes are keys of the
 * body: `attributes.message` never means the line's own message.
 */
export function toLegacyField(keys: readonly [string, ...string[]]): Field {
  const field = toField(keys);
  if (field.kind === "line" || hasGuardedKey(keys) || !isLegacyField(keys)) return field;
  const bare = stripPrefix(field.path);
  const [first, ...others] = [bare, stripSuffix(field.path), bare && stripSuffix(bare)].filter(
    (path) => path !== undefined,
  );
  return first === undefined ? field : { ...field, alternatives: [first, ...others] };
}

function stripPrefix([prefix, first, ...others]: Path): Path | undefined {
  if (prefix !== "attributes" || first === undefined) return undefined;
  return first === "" && others.length === 0 ? undefined : [first, ...others];
}

function stripSuffix(path: Path): Path | undefined {
  const last = path[path.length - 1] ?? "";
  const name = last.replace(typeSuffix, "");
  // A key that is nothing but a suffix, `_string`, has no name to strip to.
  if (name === last || name === "") return undefined;
  const [first, ...others] = [...path.slice(0, -1), name];
  return first === undefined ? undefined : [first, ...others];
}

/**
 * A bracket list, from its `[`. Elements are separated by commas and trimmed; unquoted they hold anything but `,` and
 * `]`, spaces and parentheses too; an empty one is written `""`.
 * @throws {Unprocessable} `invalid_log_query`
 */
export function scanList(query: string, start: number): List {
  const elements: ListElement[] = [];
  let position = start;
  do {
    position = skipSpaces(query, position + 1);
    const element =
      query[position] === '"' ? scanQuotedElement(query, position) : scanElement(query, position);
    elements.push(element);
    position = skipSpaces(query, element.span.end);
    if (position === query.length)
      throw createSyntaxError(query, { start, end: position }, "a closing bracket");
    if (query[position] !== "," && query[position] !== "]") {
      throw createSyntaxError(query, { start: position, end: position + 1 }, "a comma or a closing bracket");
    }
  } while (query[position] === ",");
  const end = position + 1;
  if (!isTermEnd(query, end)) {
    throw createSyntaxError(
      query,
      { start: end, end: scanWord(query, end).end },
      "a space or a parenthesis after the list",
    );
  }
  const [first, ...others] = elements;
  if (first === undefined) throw createSyntaxError(query, { start, end }, "a value");
  return { elements: [first, ...others], end };
}

function scanQuotedElement(query: string, start: number): ListElement {
  const { value, end } = scanQuoted(query, start);
  return { value, span: { start, end } };
}

function scanElement(query: string, start: number): ListElement {
  let end = start;
  while (end < query.length && query[end] !== "," && query[end] !== "]") end++;
  if (end === query.length) throw createSyntaxError(query, { start, end }, "a closing bracket");
  while (end > start && isSpace(query, end - 1)) end--;
  if (end === start) {
    throw createSyntaxError(query, { start, end }, "a value", 'An empty text in a list is written "".');
  }
  return { value: query.slice(start, end), span: { start, end } };
}
