// Reads the references of a span to other spans: its links, and its parent where a document names it in a list of references only.
import type { SpanLink } from "../../../src/core/rows.ts";
import { normaliseId } from "../../../src/tracing/spans/span-ids.ts";
import {
  createFieldTable,
  type FieldTable,
  type FieldValues,
  readFieldList,
  readFieldValue,
} from "../document/field-table.ts";
import { type AttributeReader, compileAttributes } from "./attribute-decoder.ts";
import { emptyList } from "./event-decoder.ts";
import type { SpanForm } from "./span-layout.ts";
import { findFirstText, noAttributes, resolveName, type Scope, toText } from "./value-rules.ts";

/** Reads the links of a span; the reference that names its parent is no link. Undefined if the form has none. */
export function compileLinks(
  table: FieldTable,
  { links, parent_reference: parentRule }: SpanForm,
): ((fields: FieldValues, trace: string, parent: string | undefined) => readonly SpanLink[]) | undefined {
  if (links === undefined) return undefined;
  const list = table.addList(links.at);
  const linkTable = createFieldTable();
  const traceNames = [resolveName(linkTable, links.trace_id)];
  const spanNames = [resolveName(linkTable, links.span_id)];
  const stateNames = links.trace_state === undefined ? [] : [resolveName(linkTable, links.trace_state)];
  const readAttributes: AttributeReader =
    links.attributes === undefined ? () => ({}) : compileAttributes(linkTable, links.attributes, undefined);
  const isParent =
    links.at === parentRule?.at ? compileReferenceRule(linkTable, parentRule.where) : () => false;
  return (fields, trace, parent) => {
    const objects = readFieldList(fields, list);
    if (objects.length === 0) return emptyList;
    return objects.flatMap((object): readonly SpanLink[] => {
      const scope: Scope = { ...noAttributes, fields: linkTable.read(object) };
      const traceId = findFirstText(scope, traceNames);
      const spanId = findFirstText(scope, spanNames);
      if (traceId === undefined || spanId === undefined) return [];
      const [trace_id, span_id] = [normaliseId(traceId, 32), normaliseId(spanId, 16)];
      if (span_id === parent && trace_id === trace && isParent(scope.fields)) return [];
      const trace_state = findFirstText(scope, stateNames) ?? "";
      return [{ trace_id, span_id, trace_state, attributes: readAttributes(scope.fields) }];
    });
  };
}

/** Reads the id of the parent by the form's `parent_reference`; undefined if the form has none. */
export function compileParentReference(
  table: FieldTable,
  { parent_reference: rule }: SpanForm,
): ((fields: FieldValues, trace: string) => string | undefined) | undefined {
  if (rule === undefined) return undefined;
  const list = table.addList(rule.at);
  const referenceTable = createFieldTable();
  const isParent = compileReferenceRule(referenceTable, rule.where);
  const isOther =
    rule.otherwise === undefined ? () => false : compileReferenceRule(referenceTable, rule.otherwise);
  const [spanField, traceField] = [
    referenceTable.addField(rule.span_id),
    referenceTable.addField(rule.trace_id),
  ];
  return (fields, trace) => {
    let other: string | undefined;
    let elsewhere: string | undefined;
    for (const object of readFieldList(fields, list)) {
      const reference = referenceTable.read(object);
      const id = toText(readFieldValue(reference, spanField));
      if (id === undefined || /^0*$/.test(id)) continue;
      const traceId = toText(readFieldValue(reference, traceField));
      const isHere = traceId === undefined || normaliseId(traceId, 32) === trace;
      if (isParent(reference)) {
        if (isHere) return id;
        elsewhere ??= id;
      } else if (isHere && isOther(reference)) other ??= id;
    }
    return other ?? elsewhere;
  };
}

/** Whether a reference has all of these texts. */
function compileReferenceRule(
  table: FieldTable,
  texts: Readonly<Record<string, string>>,
): (fields: FieldValues) => boolean {
  const expected = Object.entries(texts).map(([name, text]) => ({ field: table.addField(name), text }));
  return (fields) => expected.every(({ field, text }) => toText(readFieldValue(fields, field)) === text);
}
