// What `readout check` reports about one group of indices with equal mappings: whether lines can be read from it, and which
// filters have to read every line of a range.
import type { Product } from "../client/product.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import { type LogLayout, listSeverityFields } from "../layout/log-layout.ts";
import { type IndexedField, isDateType } from "../mapping/indexed-field.ts";
import {
  findField,
  type IndexGroup,
  isDynamicallyIndexed,
  isUnindexed,
  isUnsortable,
} from "../mapping/mapping.ts";
import { hasFieldsBelow, isNumeric } from "../query/comparison-compiler.ts";
import type { Findings } from "../search/findings.ts";
import { formatNames, hiddenFieldsProblem } from "../search/search.ts";

export function inspectIndexGroup(
  group: IndexGroup,
  layoutGroup: LayoutGroup,
  product: Product,
  findings: Findings,
): void {
  inspectSourceMode(group, findings);
  inspectTimeField(group, layoutGroup, product, findings);
  inspectLineFields(group, layoutGroup.layout, product, findings);
  inspectSeverity(group, layoutGroup.layout, findings);
  inspectSearchability(group, layoutGroup, findings);
}

function inspectSourceMode(group: IndexGroup, { limitations, problems }: Findings): void {
  const { indices } = group;
  if (group.sourceMode === "cut")
    problems.push({ indices, text: `_source is not kept whole, so lines cannot be answered` });
  if (group.hidesFields) problems.push({ indices, text: hiddenFieldsProblem });
  if (group.sourceMode === "synthetic") {
    limitations.push({
      indices,
      text: `_source is synthetic: key order, number spelling and array order are the index's`,
    });
  }
}

function inspectTimeField(
  group: IndexGroup,
  { time, unit }: LayoutGroup,
  product: Product,
  { limitations, problems }: Findings,
): void {
  const { indices } = group;
  const field = group.fields.get(time);
  if (field === undefined) {
    limitations.push({ indices, text: `${time} is not mapped; its documents are never in a range` });
  } else if (unit === undefined && !isDateType(field.type)) {
    problems.push({ indices, text: `${time} is of type ${field.type}, not date or date_nanos` });
  } else if (isUnsortable(group, time)) {
    problems.push({ indices, text: `${time} has no doc_values, so lines cannot be sorted by it` });
  } else if (isUnindexed(group, time) && !product.searchesDocValues) {
    problems.push({
      indices,
      text: `${time} is not indexed, and ${product.name} ${product.version} finds nothing by it`,
    });
  }
}

/** Of each line field, the first of its names that is mapped. */
function inspectLineFields(
  group: IndexGroup,
  { message, hostname, group: groupNames, severity }: LogLayout,
  product: Product,
  { limitations }: Findings,
): void {
  const { indices } = group;
  const lineFields = { message, hostname, group: groupNames, severity: listSeverityFields(severity) };
  for (const [lineField, names] of Object.entries(lineFields)) {
    const [field] = names.flatMap((name) => findField(group, name) ?? []);
    if (field === undefined) {
      if (names.every((name) => isDynamicallyIndexed(group, name))) continue;
      limitations.push({
        indices,
        text: `${lineField} (${names.join(", ")}) is not mapped; filters on it read every line of the range`,
      });
    } else if (!field.indexed) {
      limitations.push({
        indices,
        text: `${field.name} is not searchable; filters on ${lineField} read every line of the range`,
      });
    } else if (lineField !== "severity" && field.type === "keyword" && !product.listsIgnored) {
      const dropped = Number.isFinite(field.ignoreAbove)
        ? `drops values over ${field.ignoreAbove} characters`
        : "may have dropped long values while it had an ignore_above";
      limitations.push({
        indices,
        text: `${field.name} ${dropped}, and ${product.name} does not list them; ${lineField}: (contains) reads every line of the range`,
      });
    }
  }
}

/**
 * Reports severities that are numbers without a rule in the layout that reads them. A number that has its name beside it, as
 * syslog's from Logstash (`severity`, `severity_label`), is read by the name.
 */
function inspectSeverity(group: IndexGroup, { name, severity }: LogLayout, { limitations }: Findings): void {
  const mapped = listSeverityFields(severity).filter((field) => findField(group, field) !== undefined);
  const unread = mapped.filter((field) => {
    const found = findField(group, field);
    const rules = severity.filter((rule) => rule.field === field);
    return (
      found !== undefined &&
      isNumeric(found) &&
      rules.every(({ at_least, values }) => at_least === undefined && values === undefined) &&
      !mapped.some((other) => other.startsWith(`${field}_`))
    );
  });
  if (unread.length === 0) return;
  limitations.push({
    indices: group.indices,
    text: `${formatNames(unread)} holds numbers, which the layout ${name} does not read as severities; a custom layout can (at_least)`,
  });
}

function inspectSearchability(
  group: IndexGroup,
  { time, layout }: LayoutGroup,
  { limitations }: Findings,
): void {
  const { indices } = group;
  // The time may be bounded by its doc_values.
  const unsearchable = listUnsearchable(group).filter((name) => name !== time);
  if (unsearchable.length > 0) {
    limitations.push({
      indices,
      text: `${formatNames(unsearchable)} cannot be searched; filters on them read every line of the range`,
    });
  }
  const closed = listClosedObjects(group);
  if (closed.length > 0) {
    limitations.push({
      indices,
      text: `names below ${formatNames(closed)} that are not mapped are not indexed (dynamic: false); filters on them read every line of the range`,
    });
  }
  // Of an archive and the like, the mapping says nothing about names that it lacks either.
  if (layout.json === "source" && !/^(?:true|strict)$/.test(group.dynamic)) {
    limitations.push({
      indices,
      text: `names that are not mapped are not indexed (dynamic: ${group.dynamic}); filters on them read every line of the range`,
    });
  }
  const flatRoots = listFlatRoots(group);
  if (flatRoots.length > 0) {
    limitations.push({
      indices,
      text: `${formatNames(flatRoots)} is flat_object; filters on its keys read every line that has any`,
    });
  }
}

/** The topmost names that are not indexed, or below which nothing is. */
function listUnsearchable(group: IndexGroup): readonly string[] {
  return listTopmost(
    group,
    (field) => !field.indexed || (field.dynamic === "false" && !hasFieldsBelow(group, field.name)),
  );
}

/** The topmost objects below which the mapped names are indexed, and no others. */
function listClosedObjects(group: IndexGroup): readonly string[] {
  return listTopmost(
    group,
    (field) => field.indexed && field.dynamic === "false" && hasFieldsBelow(group, field.name),
  );
}

function listTopmost({ fields }: IndexGroup, isListed: (field: IndexedField) => boolean): readonly string[] {
  const listed = [...fields.values()].filter((field) => field.aliasOf === undefined && isListed(field));
  const names = new Set(listed.map(({ name }) => name));
  return [...names].filter((name) => ![...names].some((other) => name.startsWith(`${other}.`)));
}

function listFlatRoots({ fields }: IndexGroup): readonly string[] {
  return [...fields.values()].filter(({ type }) => type === "flat_object").map(({ name }) => name);
}
