// Query text to filter: recursive descent over the three levels of rules 1 and 2 (OR, AND, a term or a group). The
// recursion is bounded by the depth limit, which counts parentheses as they open, so no query can exhaust the stack;
// the scanner looks back at nothing twice, so time is linear in the text.
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

/** `parse` for a language with other names. Throws as `parse` does, and what the language's `fieldOf` throws. */
export function parseAs<F>(query: string, language: Language<F>): Filter<F> {
  checkText(query);
  let position = skipSpaces(query, 0);
  let depth = 0;
  let leaves = 0;
  // A field scan that met no operator up to here. It may have run over escaped spaces, so that terms inside it would
  // be scanned again and again to the same end.
  let fieldlessUntil = 0;

  if (position === query.length) return { kind: "all" };
  const whole = parseChain("or", parseAnd);
  if (position < query.length) {
    throw createSyntaxError(
      query,
      { start: position, end: position + 1 },
      "the end of the query",
      "No parenthesis is open here.",
    );
  }
  return whole.filter;

  function parseAnd(): Operand<F> {
    return parseChain("and", parseOperand);
  }

  function parseChain(kind: Group["kind"], parseNext: () => Operand<F>): Operand<F> {
    const first = parseNext();
    const others: Operand<F>[] = [];
    while (continues(kind)) others.push(parseNext());
    const [second, ...rest] = others;
    if (second === undefined) return first;
    const span = { start: first.span.start, end: (others[others.length - 1] ?? second).span.end };
    const operands = [first.filter, second.filter, ...rest.map((operand) => operand.filter)] as const;
    return { filter: { kind, operands, span }, span };
  }

  /** Whether the chain goes on here, its word consumed. Rule 1: nothing but a space means AND. */
  function continues(kind: Group["kind"]): boolean {
    position = skipSpaces(query, position);
    if (position === query.length || query[position] === ")") return false;
    const word = wordAt(position);
    if (kind === "or" ? word !== "OR" : word === "OR") return false;
    position += word?.length ?? 0;
    return true;
  }

  function wordAt(start: number): "AND" | "OR" | undefined {
    if (query.startsWith("AND", start) && isTermEnd(query, start + 3)) return "AND";
    if (query.startsWith("OR", start) && isTermEnd(query, start + 2)) return "OR";
    return undefined;
  }

  function parseOperand(): Operand<F> {
    position = skipSpaces(query, position);
    const start = position;
    if (start === query.length) throw createSyntaxError(query, { start, end: start }, anExpression);
    if (query[start] === ")") throw createSyntaxError(query, { start, end: start + 1 }, anExpression);
    const word = wordAt(start);
    if (word !== undefined) {
      const hint = `To search for the word ${word}, put it in double quotes.`;
      throw createSyntaxError(query, { start, end: start + word.length }, anExpression, hint);
    }
    return query[start] === "(" ? parseGroup(start) : parseTerm(start);
  }

  function parseGroup(start: number): Operand<F> {
    enter();
    position = start + 1;
    const { filter } = parseChain("or", parseAnd);
    if (position === query.length) {
      throw createSyntaxError(query, { start: position, end: position }, "a closing parenthesis");
    }
    position++;
    depth--;
    return { filter, span: { start, end: position } };
  }

  function parseTerm(start: number): Operand<F> {
    const scanned = query[start] === '"' || start < fieldlessUntil ? undefined : scanField(query, start);
    if (scanned?.operator === undefined) {
      // Rule 7: a bare term.
      fieldlessUntil = Math.max(fieldlessUntil, scanned?.end ?? 0);
      const { value, end } = scanValue(start);
      position = end;
      return leaf(language.bareTermField, ":", value, { start, end });
    }
    const { keys, operator, end: fieldEnd } = scanned;
    const valueStart = fieldEnd + operator.length;
    if (fieldEnd === start) {
      const hint = "No space goes before an operator; text that begins with one goes in double quotes.";
      throw createSyntaxError(query, { start, end: valueStart }, "a field name", hint);
    }
    const field = language.resolveField({ query, keys, operator, field: { start, end: fieldEnd } });
    if (language.hasLists && query[valueStart] === "[") return parseList(field, operator, start, valueStart);
    const { value, end } = scanValue(valueStart);
    if (end === valueStart) {
      const hint = 'No space goes after an operator; the empty text is written "".';
      throw createSyntaxError(query, { start: end, end }, "a value", hint);
    }
    if (numeric.has(operator) && !numberPattern.test(value)) {
      throw createSyntaxError(
        query,
        { start: valueStart, end },
        "a number",
        `${operator} compares numbers only.`,
      );
    }
    position = end;
    return leaf(field, operator, value, { start, end });
  }

  function scanValue(start: number): ScannedText {
    if (query[start] !== '"') return scanWord(query, start);
    const scanned = scanQuoted(query, start);
    if (isTermEnd(query, scanned.end)) return scanned;
    const hint =
      "Inside quotes a double quote is written \\\"; a field is not quoted, a space in a key is written '\\ '.";
    const span = { start: scanned.end, end: scanWord(query, scanned.end).end };
    throw createSyntaxError(query, span, "a space or a parenthesis after the closing quote", hint);
  }

  /** Any of the list, or none of it: a group, so it counts as a level of depth. */
  function parseList(field: F, operator: Operator, start: number, valueStart: number): Operand<F> {
    if (numeric.has(operator)) {
      const span = { start: valueStart, end: scanWord(query, valueStart).end };
      throw createSyntaxError(query, span, "a number", `${operator} takes no list.`);
    }
    enter();
    const { elements, end } = scanList(query, valueStart);
    const span = { start, end };
    const [first, ...others] = elements;
    const [one, two, ...rest] = [
      leaf(field, operator, first.value, first.span).filter,
      ...others.map((element) => leaf(field, operator, element.value, element.span).filter),
    ];
    position = end;
    depth--;
    if (one === undefined || two === undefined) return buildLeaf(field, operator, first.value, span);
    const kind = operator === "=" || operator === ":" ? "or" : "and";
    return { filter: { kind, operands: [one, two, ...rest], span }, span };
  }

  function leaf(field: F, operator: Operator, value: string, span: SourceSpan): Operand<F> {
    leaves++;
    if (leaves > queryLimits.leaves)
      throw createTooComplexError(`more than ${queryLimits.leaves} comparisons`, queryLimits.leaves);
    return buildLeaf(field, operator, value, span);
  }

  function enter(): void {
    depth++;
    if (depth > queryLimits.depth)
      throw createTooComplexError(`more than ${queryLimits.depth} levels of groups`, queryLimits.depth);
  }
}

function buildLeaf<F>(field: F, operator: Operator, value: string, span: SourceSpan): Operand<F> {
  const filter: Compare<F> = { kind: "compare", field, operator, value, span };
  return { filter, span };
}

/** A NUL and half a surrogate pair are no text: no source can hold them as such, so they are refused, not searched. */
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
