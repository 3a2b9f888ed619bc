// Query text to filter: recursive descent over the three levels of rules 1 and 2 (OR, AND, a term or a group). The
// recursion is bounded by the depth limit, which counts parentheses as they open, so no query can exhaust the stack;
// the scanner looks back at nothing twice, so time is linear in the text.
import { requireLast } from "../core/collections.ts";
import { Unprocessable } from "../core/errors.ts";
import {
  type Compare,
  type Field,
  type Filter,
  type Group,
  numberPattern,
  type Operator,
  queryLimits,
  type SourceSpan,
} from "./ast.ts";
import { isLegacyField, toField } from "./field.ts";
import { scanList, toLegacyField } from "./legacy.ts";
import {
  createSyntaxError,
  isTermEnd,
  type ScannedText,
  scanField,
  scanQuoted,
  scanWord,
  skipSpaces,
} from "./scan.ts";

/** A filter with the place that it takes in the text, its own parentheses included. */
interface Operand<F> {
  readonly filter: Filter<F>;
  readonly span: SourceSpan;
}

/** What sets one language of this grammar apart from another: what its names mean. */
export interface Language<F> {
  /** What a bare term is looked for in. */
  readonly bareTermField: F;
  /** @throws {Unprocessable} */
  readonly resolveField: (term: Term) => F;
  /** Whether a bracket after an operator opens a list. */
  readonly hasLists: boolean;
}
/** A term with an operator, as far as it is read. */
export interface Term {
  readonly query: string;
  /** As written. */
  readonly keys: readonly [string, ...string[]];
  readonly operator: Operator;
  /** Of the field, in the query. */
  readonly field: SourceSpan;
}

const numeric: ReadonlySet<Operator> = new Set([">", ">=", "<", "<="]);
const anExpression = "an expression";

/**
 * The filter that a query means. `legacy` is the wider grammar, for `use_expressions` false or absent. Spans are
 * UTF-16 units of `query`.
 *
 * @throws {Unprocessable} and nothing else: `legacy_log_query_syntax` (never with `legacy`), `invalid_log_query` whose
 * range lies inside the text (empty where something is missing), `log_query_too_complex`
 */
export function parse(query: string, options: { readonly legacy?: boolean | undefined } = {}): Filter {
  return parseAs(query, options.legacy === true ? widerLanguage : logLanguage);
}

const message: Field = { kind: "line", name: "message" };
const widerLanguage: Language<Field> = {
  bareTermField: message,
  resolveField: ({ keys }) => toLegacyField(keys),
  hasLists: true,
};
const logLanguage: Language<Field> = {
  bareTermField: message,
  resolveField: ({ query, keys, operator, field: { start, end } }) => {
    const isList = query[end + operator.length] === "[";
    if (isList || isLegacyField(keys)) throw createLegacySyntaxError(query.slice(start, end), isList);
    return toField(keys);
  },
  hasLists: false,
};

/** How far a query has been read. */
interface ParserState<F> {
  readonly query: string;
  readonly language: Language<F>;
  position: number;
  depth: number;
  leaves: number;
  /**
   * Up to here a scan for a field met no operator. Such a scan may run over escaped spaces, so that terms inside it would
   * be scanned again and again to the same end.
   */
  fieldlessUntil: number;
}

/** `parse` for a language with other names. Throws as `parse` does, and what the language's `resolveField` throws. */
export function parseAs<F>(query: string, language: Language<F>): Filter<F> {
  checkSize(query);
  checkText(query);
  const state = { query, language, position: skipSpaces(query, 0), depth: 0, leaves: 0, fieldlessUntil: 0 };
  if (state.position === query.length) return { kind: "all" };
  const { filter } = parseChain(state, "or");
  const { position } = state;
  if (position < query.length) {
    const span = { start: position, end: position + 1 };
    throw createSyntaxError(query, span, "the end of the query", "No parenthesis is open here.");
  }
  return filter;
}

/** Operands of one kind: those of OR are chains of AND, those of AND are terms and groups. */
function parseChain<F>(state: ParserState<F>, kind: Group["kind"]): Operand<F> {
  const parseNext = (): Operand<F> => (kind === "or" ? parseChain(state, "and") : parseOperand(state));
  const first = parseNext();
  const others: Operand<F>[] = [];
  while (consumeConnective(state, kind)) others.push(parseNext());
  const [second, ...rest] = others;
  if (second === undefined) return first;
  const span = { start: first.span.start, end: requireLast(others).span.end };
  const operands = [first.filter, second.filter, ...rest.map((operand) => operand.filter)] as const;
  return { filter: { kind, operands, span }, span };
}

/** Whether the chain goes on here; its word is then consumed. Rule 1: nothing but a space means AND. */
function consumeConnective<F>(state: ParserState<F>, kind: Group["kind"]): boolean {
  state.position = skipSpaces(state.query, state.position);
  const { query, position } = state;
  if (position === query.length || query[position] === ")") return false;
  const word = findConnective(query, position);
  if (kind === "or" ? word !== "OR" : word === "OR") return false;
  state.position += word?.length ?? 0;
  return true;
}

function findConnective(query: string, start: number): "AND" | "OR" | undefined {
  if (query.startsWith("AND", start) && isTermEnd(query, start + 3)) return "AND";
  if (query.startsWith("OR", start) && isTermEnd(query, start + 2)) return "OR";
  return undefined;
}

function parseOperand<F>(state: ParserState<F>): Operand<F> {
  const { query } = state;
  const start = skipSpaces(query, state.position);
  state.position = start;
  if (start === query.length) throw createSyntaxError(query, { start, end: start }, anExpression);
  if (query[start] === ")") throw createSyntaxError(query, { start, end: start + 1 }, anExpression);
  const word = findConnective(query, start);
  if (word !== undefined) {
    const hint = `To search for the word ${word}, put it in double quotes.`;
    throw createSyntaxError(query, { start, end: start + word.length }, anExpression, hint);
  }
  return query[start] === "(" ? parseGroup(state, start) : parseTerm(state, start);
}

function parseGroup<F>(state: ParserState<F>, start: number): Operand<F> {
  enterGroup(state);
  state.position = start + 1;
  const { filter } = parseChain(state, "or");
  const { query, position } = state;
  if (position === query.length) {
    throw createSyntaxError(query, { start: position, end: position }, "a closing parenthesis");
  }
  state.position += 1;
  state.depth -= 1;
  return { filter, span: { start, end: state.position } };
}

function parseTerm<F>(state: ParserState<F>, start: number): Operand<F> {
  const { query, language } = state;
  const scanned = query[start] === '"' || start < state.fieldlessUntil ? undefined : scanField(query, start);
  if (scanned?.operator === undefined) {
    // Rule 7: a bare term.
    state.fieldlessUntil = Math.max(state.fieldlessUntil, scanned?.end ?? 0);
    const { value, end } = scanValue(query, start);
    state.position = end;
    return countLeaf(state, language.bareTermField, ":", value, { start, end });
  }
  const { keys, operator, end: fieldEnd } = scanned;
  if (keys.length > queryLimits.segments) {
    throw createTooComplexError(`a path of more than ${queryLimits.segments} segments`, queryLimits.segments);
  }
  const valueStart = fieldEnd + operator.length;
  if (fieldEnd === start) {
    const hint = "No space goes before an operator; text that begins with one goes in double quotes.";
    throw createSyntaxError(query, { start, end: valueStart }, "a field name", hint);
  }
  const field = language.resolveField({ query, keys, operator, field: { start, end: fieldEnd } });
  if (language.hasLists && query[valueStart] === "[") {
    return parseList(state, field, operator, start, valueStart);
  }
  const { value, end } = scanValue(query, valueStart);
  if (end === valueStart) {
    const hint = 'No space goes after an operator; the empty text is written "".';
    throw createSyntaxError(query, { start: end, end }, "a value", hint);
  }
  if (numeric.has(operator) && !numberPattern.test(value)) {
    const span = { start: valueStart, end };
    throw createSyntaxError(query, span, "a number", `${operator} compares numbers only.`);
  }
  state.position = end;
  return countLeaf(state, field, operator, value, { start, end });
}

function scanValue(query: string, start: number): ScannedText {
  if (query[start] !== '"') return scanWord(query, start);
  const scanned = scanQuoted(query, start);
  if (isTermEnd(query, scanned.end)) return scanned;
  const hint =
    "Inside quotes a double quote is written \\\"; a field is not quoted, a space in a key is written '\\ '.";
  const span = { start: scanned.end, end: scanWord(query, scanned.end).end };
  throw createSyntaxError(query, span, "a space or a parenthesis after the closing quote", hint);
}

/** Any of the list, or none of it: a group, so it counts as a level of depth. */
function parseList<F>(
  state: ParserState<F>,
  field: F,
  operator: Operator,
  start: number,
  valueStart: number,
): Operand<F> {
  const { query } = state;
  if (numeric.has(operator)) {
    const span = { start: valueStart, end: scanWord(query, valueStart).end };
    throw createSyntaxError(query, span, "a number", `${operator} takes no list.`);
  }
  enterGroup(state);
  const { elements, end } = scanList(query, valueStart);
  const span = { start, end };
  const [first, ...others] = elements;
  const [one, two, ...rest] = [
    countLeaf(state, field, operator, first.value, first.span).filter,
    ...others.map((element) => countLeaf(state, field, operator, element.value, element.span).filter),
  ];
  state.position = end;
  state.depth -= 1;
  if (one === undefined || two === undefined) return buildLeaf(field, operator, first.value, span);
  const kind = operator === "=" || operator === ":" ? "or" : "and";
  return { filter: { kind, operands: [one, two, ...rest], span }, span };
}

function countLeaf<F>(
  state: ParserState<F>,
  field: F,
  operator: Operator,
  value: string,
  span: SourceSpan,
): Operand<F> {
  state.leaves += 1;
  if (state.leaves > queryLimits.leaves) {
    throw createTooComplexError(`more than ${queryLimits.leaves} comparisons`, queryLimits.leaves);
  }
  return buildLeaf(field, operator, value, span);
}

function enterGroup<F>(state: ParserState<F>): void {
  state.depth += 1;
  if (state.depth > queryLimits.depth) {
    throw createTooComplexError(`more than ${queryLimits.depth} levels of groups`, queryLimits.depth);
  }
}

function buildLeaf<F>(field: F, operator: Operator, value: string, span: SourceSpan): Operand<F> {
  const filter: Compare<F> = { kind: "compare", field, operator, value, span };
  return { filter, span };
}

/** In UTF-8, where a UTF-16 unit takes one to three bytes: most texts are judged by their length alone. */
function checkSize(query: string): void {
  const { bytes } = queryLimits;
  if (query.length <= bytes / 3) return;
  if (query.length > bytes || Buffer.byteLength(query) > bytes) {
    throw createTooComplexError(`more than ${bytes} bytes`, bytes);
  }
}

/** Half a surrogate pair is no text, and not every source takes a NUL: they are refused, not searched. */
function checkText(query: string): void {
  const at = query.isWellFormed() ? query.indexOf("\0") : query.search(/[\0\p{Surrogate}]/u);
  if (at !== -1)
    throw createSyntaxError(query, { start: at, end: at + 1 }, "text without NUL and lone surrogates");
}

function createLegacySyntaxError(field: string, isList: boolean): Unprocessable {
  const advice = isList
    ? "Write a bracketed list of values as an OR group, or quote a value that begins with a bracket."
    : "Name the field directly, without the attributes prefix and without a type suffix.";
  return new Unprocessable("legacy_log_query_syntax", `Legacy query syntax at ${field}. ${advice}`, {
    field,
  });
}

function createTooComplexError(what: string, limit: number): Unprocessable {
  return new Unprocessable("log_query_too_complex", `The query has ${what}.`, { limit });
}
