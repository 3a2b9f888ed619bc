// Compiles comparisons with the severity of a line. It is compared as answered, so every spelling that a document may have
// counts, and a document without one is `unknown`.
import { type Severity, severities } from "../../../src/core/rows.ts";
import { listSeverityWords } from "../../../src/core/severity-words.ts";
import type { Operator } from "../../../src/log-query/ast.ts";
import type { Product } from "../client/product.ts";
import { allOf, anyOf, matchAll, matchNone, not, type Query } from "../client/query-dsl.ts";
import type { SeverityRule } from "../layout/log-layout.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import { buildLateFieldQuery, findField, isDynamicallyIndexed } from "../mapping/mapping.ts";
import {
  type Bounds,
  type CompileScope,
  compileFieldComparison,
  includeIgnored,
  isExactTerm,
  isNumeric,
  isTextField,
  toExactBounds,
  toUpperBounds,
  unknownBounds,
} from "./comparison-compiler.ts";

/** The bounds of a comparison with the severity, which every line has. */
export function compileSeverity(
  rules: readonly SeverityRule[],
  operator: Operator,
  value: string,
  scope: CompileScope,
): Bounds {
  const matching = severities.filter((name) =>
    operator === "=" ? name === value : operator === ":" && name.includes(value),
  );
  if (matching.length === 0) return toExactBounds(matchNone);
  if (matching.length === severities.length) return toExactBounds(matchAll);
  if (matching.includes("unknown")) return unknownBounds;
  const notEarlier: Query[] = [];
  const byRule: Query[] = [];
  for (const rule of rules) {
    const own = buildSeverityQuery(rule, matching, scope);
    // A rule that narrows by itself needs no further clauses.
    byRule.push(own === matchAll || hasNumbersInTexts(rule, scope) ? allOf([own, ...notEarlier]) : own);
    const certain = buildCertainSeverityQuery(rule, scope);
    if (certain !== matchNone) notEarlier.push(not(certain));
  }
  return toUpperBounds(anyOf(byRule));
}

/** Whether a rule reads numbers from a field of texts: the index finds any text for them. */
function hasNumbersInTexts({ field: name, at_least: steps }: SeverityRule, { group }: CompileScope): boolean {
  const field = findField(group, name);
  return steps !== undefined && field !== undefined && !isNumeric(field);
}

/**
 * Documents that may get one of these severities by a rule. That a rule of last resort does not count beside other values is left
 * to reading.
 */
function buildSeverityQuery(rule: SeverityRule, matching: readonly Severity[], scope: CompileScope): Query {
  const { field: name, values = {}, at_least: steps } = rule;
  if (isDynamicallyIndexed(scope.group, name))
    return buildLateFieldQuery(scope.group, name, scope.product.listsIgnored);
  const field = findField(scope.group, name);
  if (field === undefined || !field.indexed || field.hasExtraValues || field.nested !== undefined)
    return matchAll;
  if (rule.values === undefined && steps === undefined) {
    // A word is not a number, and malformed values are not indexed.
    if (isNumeric(field)) return includeIgnored(field, matchNone, scope)?.upper ?? matchAll;
    return buildWordsQuery(field, matching.flatMap(listSeverityWords), scope.product);
  }
  const texts = Object.keys(values).filter((text) => matching.some((severity) => severity === values[text]));
  const ranges = buildStepQueries(field, steps ?? [], matching, scope);
  return anyOf([...texts.map((text) => compileFieldComparison(name, "=", text, scope).upper), ...ranges]);
}

/** Documents whose number may reach a step of one of these severities. */
function buildStepQueries(
  field: IndexedField,
  steps: NonNullable<SeverityRule["at_least"]>,
  matching: readonly Severity[],
  scope: CompileScope,
): readonly Query[] {
  const reached = steps.flatMap(({ from, severity }, at) =>
    matching.includes(severity) ? [{ from, before: steps[at + 1]?.from }] : [],
  );
  if (reached.length > 0 && isTextField(field) && !field.hasCustomAnalysis) {
    const exists = { exists: { field: field.name } };
    return [includeIgnored(field, exists, scope)?.upper ?? matchAll];
  }
  return reached.map(({ from, before }) => buildBetweenQuery(field, from, before, scope));
}

const integerTypes: readonly string[] = ["byte", "short", "integer", "long"];

/** Numbers from a bound (inclusive) to another (exclusive). */
function buildBetweenQuery(
  field: IndexedField,
  from: number,
  before: number | undefined,
  scope: CompileScope,
): Query {
  if (integerTypes.includes(field.type) && from > 0) {
    // Other numbers are truncated to integers, which moves no positive number below an integer bound.
    const range = { range: { [field.name]: { gte: from, ...(before === undefined ? {} : { lt: before }) } } };
    return includeIgnored(field, range, scope)?.upper ?? matchAll;
  }
  const least = compileFieldComparison(field.name, ">=", String(from), scope).upper;
  return before === undefined
    ? least
    : allOf([least, compileFieldComparison(field.name, "<", String(before), scope).upper]);
}

/** Documents that certainly get a severity by a rule, so that later rules do not apply. */
function buildCertainSeverityQuery(rule: SeverityRule, { group }: CompileScope): Query {
  // Another field may have a value that nobody can read, beside which a rule of last resort does not count.
  if (rule.at_least !== undefined || rule.last_resort === true) return matchNone;
  const field = findField(group, rule.field);
  if (field === undefined || field.nested !== undefined) return matchNone;
  const found = [field, ...field.multiFields.flatMap((name) => group.fields.get(name) ?? [])];
  const keyword = found.find((candidate) => isExactTerm(candidate, "error"));
  if (keyword === undefined) return matchNone;
  if (rule.values !== undefined) {
    const known = Object.keys(rule.values).filter((text) => isExactTerm(keyword, text));
    return known.length === 0 ? matchNone : { terms: { [keyword.name]: known } };
  }
  // Spelled as loggers do. A document with another spelling is not certain here, which only lets later rules find it too.
  const spellings = severities
    .filter((name) => name !== "unknown")
    .flatMap(listSeverityWords)
    .flatMap((word) => [word, word.toUpperCase(), `${word.charAt(0).toUpperCase()}${word.slice(1)}`])
    .filter((spelling) => isExactTerm(keyword, spelling));
  return { terms: { [keyword.name]: [...new Set(spellings)] } };
}

/** Documents with one of these words at a field, in upper or lower case, as one clause: mappings of an index are many. */
function buildWordsQuery(
  field: IndexedField,
  words: readonly string[],
  { refusesExpensiveQueries }: Product,
): Query {
  const isLimited = words.some((word) => word.length > field.ignoreAbove);
  if (field.hasCustomAnalysis || field.hasExtraValues || isLimited) return matchAll;
  // The standard analyzer lower-cases, and sees a word as one token.
  if (isTextField(field)) return { terms: { [field.name]: words } };
  if (field.type !== "keyword") return matchAll;
  if (!refusesExpensiveQueries)
    return { regexp: { [field.name]: { value: words.join("|"), case_insensitive: true } } };
  return anyOf(words.map((value) => ({ term: { [field.name]: { value, case_insensitive: true } } })));
}
