// Compiles comparisons with the severity of a line. It is compared as answered, so every spelling that a document may have
// counts, and a document without one is `unknown`.
import { listSeveritySpellings, type Severity, severities } from "../../../src/core/rows.ts";
import type { Operator } from "../../../src/log-query/ast.ts";
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
    byRule.push(own === matchAll ? allOf(notEarlier) : own);
    const certain = buildCertainSeverityQuery(rule, scope);
    if (certain !== matchNone) notEarlier.push(not(certain));
  }
  return toUpperBounds(anyOf(byRule));
}

/** Documents that may get one of these severities by a rule. */
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
    return anyOf(
      matching
        .flatMap((severity) => [...listSeveritySpellings(severity)])
        .map((word) => buildSpellingQuery(field, word)),
    );
  }
  const texts = Object.keys(values).filter((text) => matching.some((severity) => severity === values[text]));
  const ranges = (steps ?? []).flatMap(({ from, severity }, at) =>
    matching.includes(severity) ? [buildBetweenQuery(field, from, steps?.[at + 1]?.from, scope)] : [],
  );
  return anyOf([...texts.map((text) => compileFieldComparison(name, "=", text, scope).upper), ...ranges]);
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
  if (rule.at_least !== undefined) return matchNone;
  const field = findField(group, rule.field);
  if (field === undefined || field.nested !== undefined) return matchNone;
  const found = [field, ...field.multiFields.flatMap((name) => group.fields.get(name) ?? [])];
  const keyword = found.find((candidate) => isExactTerm(candidate, "information"));
  if (keyword === undefined) return matchNone;
  if (rule.values !== undefined) {
    const known = Object.keys(rule.values).filter((text) => isExactTerm(keyword, text));
    return known.length === 0 ? matchNone : { terms: { [keyword.name]: known } };
  }
  const words = severities
    .filter((name) => name !== "unknown")
    .flatMap((name) => [...listSeveritySpellings(name)]);
  return anyOf(
    words
      .filter((word) => isExactTerm(keyword, word))
      .map((value) => ({ term: { [keyword.name]: { value, case_insensitive: true } } })),
  );
}

function buildSpellingQuery(field: IndexedField, spelling: string): Query {
  if (field.hasCustomAnalysis || field.hasExtraValues || spelling.length > field.ignoreAbove) return matchAll;
  if (field.type === "keyword")
    return { term: { [field.name]: { value: spelling, case_insensitive: true } } };
  // The standard analyzer lower-cases, and sees a severity as one word.
  return isTextField(field) ? { term: { [field.name]: spelling } } : matchAll;
}
