// Reads the fields that a layout names from many documents. The names are compiled into a tree that grows with the keys of
// the documents: documents of one index repeat their keys, so each name is built and compared with the layout once.
// `flatten.ts` is the definition: a name has the value that `findFlatValue` finds in the flat document, and a prefix has the
// values of the flat document below it, in its order.
import type { AttributeValue } from "../../../src/core/rows.ts";
import { findFlatValue, flattenDocument, isEmptyObject, isValueObject, type ValueObject } from "./flatten.ts";

/** A field of the table, and the names above it, where the document may have an array. */
export interface FieldRef {
  readonly slot: number;
  readonly above: readonly { readonly slot: number; readonly rest: string }[];
}
/** A list of objects, which a document may also write as one object without brackets. */
interface ListRef {
  readonly slot: number;
  readonly prefix: number;
}
/** What one document has: values by slot, and the attributes below each prefix. */
export interface FieldValues {
  readonly values: readonly (AttributeValue | undefined)[];
  readonly byPrefix: readonly (PrefixValues | undefined)[];
}
interface PrefixValues {
  readonly attributes: Record<string, AttributeValue>;
  /** Whether `attributes` is an object of the document itself, which must not be changed. */
  readonly isShared: boolean;
}

/** Fields, lists and prefixes are added before the first document is read. */
export interface FieldTable {
  addField(name: string): FieldRef;
  addList(name: string): ListRef;
  /**
   * The index of the prefix in `FieldValues.byPrefix`. Names that begin with one of `except` are left out. `formatKey` returns
   * the key of a name, by default the part behind the prefix.
   */
  addPrefix(prefix: string, except?: readonly string[], formatKey?: (name: string) => string): number;
  read(document: ValueObject): FieldValues;
}

interface Prefix {
  readonly prefix: string;
  readonly except: readonly string[];
  readonly formatKey: (name: string) => string;
  /** Whether every name below it counts, by the part behind the prefix. */
  readonly isPlain: boolean;
}

/** A name that some document has. */
interface NameNode {
  readonly name: string;
  /** -1 if the table has no such field. */
  readonly slot: number;
  readonly keys: readonly { readonly prefix: number; readonly key: string }[];
  /** Whether the table has anything below the name. */
  readonly hasFieldsBelow: boolean;
  /** The prefix whose attributes a flat object here is as it stands; -1 if there is none, or the table has more below it. */
  readonly wholePrefix: number;
  readonly children: Map<string, NameNode>;
  readonly key: string;
  // What followed in the last document, which most documents repeat: without them a read takes a tenth longer.
  firstChild: NameNode | undefined;
  nextSibling: NameNode | undefined;
}

interface TableState {
  readonly slots: Map<string, number>;
  readonly prefixes: Prefix[];
  readonly root: NameNode;
  knownNames: number;
  /** What a document without any of the names has; made for the first document, copied for each. */
  blank: FieldValues | undefined;
}

/** Further names are not remembered, since clients may invent keys without end. */
const maxKnownNames = 10_000;

export function createFieldTable(): FieldTable {
  const table: TableState = {
    slots: new Map(),
    prefixes: [],
    root: {
      name: "",
      slot: -1,
      keys: [],
      hasFieldsBelow: true,
      wholePrefix: -1,
      children: new Map(),
      key: "",
      firstChild: undefined,
      nextSibling: undefined,
    },
    knownNames: 0,
    blank: undefined,
  };
  return {
    addField: (name) => addField(table, name),
    addList: (name) => ({ slot: addSlot(table, name), prefix: addPrefix(table, `${name}.`, [], undefined) }),
    addPrefix: (prefix, except = [], formatKey) => addPrefix(table, prefix, except, formatKey),
    read: (document) => readDocument(table, document),
  };
}

function addSlot({ slots }: TableState, name: string): number {
  const slot = slots.get(name) ?? slots.size;
  slots.set(name, slot);
  return slot;
}

function addField(table: TableState, name: string): FieldRef {
  const above: { slot: number; rest: string }[] = [];
  for (let dot = name.indexOf("."); dot > 0; dot = name.indexOf(".", dot + 1)) {
    above.push({ slot: addSlot(table, name.slice(0, dot)), rest: name.slice(dot + 1) });
  }
  return { slot: addSlot(table, name), above };
}

function addPrefix(
  { prefixes }: TableState,
  prefix: string,
  except: readonly string[],
  formatKey: ((name: string) => string) | undefined,
): number {
  const formatRest = (name: string) => name.slice(prefix.length);
  const isPlain = formatKey === undefined && except.length === 0;
  return prefixes.push({ prefix, except, formatKey: formatKey ?? formatRest, isPlain }) - 1;
}

function readDocument(table: TableState, document: ValueObject): FieldValues {
  table.blank ??= {
    values: Array.from({ length: table.slots.size }, () => undefined),
    byPrefix: Array.from({ length: table.prefixes.length }, () => undefined),
  };
  const values = [...table.blank.values];
  const byPrefix = [...table.blank.byPrefix];
  visitObject(table, document, table.root, values, byPrefix);
  return { values, byPrefix };
}

function visitObject(
  table: TableState,
  object: ValueObject,
  parent: NameNode,
  values: (AttributeValue | undefined)[],
  byPrefix: (PrefixValues | undefined)[],
): void {
  let previous: NameNode | undefined;
  for (const key in object) {
    const value = object[key];
    if (value === undefined) continue;
    const expected: NameNode | undefined = previous === undefined ? parent.firstChild : previous.nextSibling;
    const node: NameNode = expected?.key === key ? expected : findNode(table, parent, previous, key);
    previous = node;
    if (!isValueObject(value) || isEmptyObject(value)) storeValue(value, node, values, byPrefix);
    else if (node.wholePrefix >= 0 && byPrefix[node.wholePrefix] === undefined && isShallow(value))
      byPrefix[node.wholePrefix] = { attributes: value, isShared: true };
    else if (node.hasFieldsBelow) visitObject(table, value, node, values, byPrefix);
  }
}

/** Where two ways lead to one name, the first counts. */
function storeValue(
  value: AttributeValue,
  node: NameNode,
  values: (AttributeValue | undefined)[],
  byPrefix: (PrefixValues | undefined)[],
): void {
  if (node.slot >= 0 && values[node.slot] === undefined) values[node.slot] = value;
  for (const { prefix, key } of node.keys) {
    const found = byPrefix[prefix];
    const own = found === undefined || found.isShared ? { ...found?.attributes } : found.attributes;
    if (own !== found?.attributes) byPrefix[prefix] = { attributes: own, isShared: false };
    addAttribute(own, key, value);
  }
}

/** The node of a key that did not follow `previous` in the last document. */
function findNode(
  table: TableState,
  parent: NameNode,
  previous: NameNode | undefined,
  key: string,
): NameNode {
  const known = parent.children.get(key);
  if (known === undefined) return addNode(table, parent, key);
  if (previous === undefined) parent.firstChild = known;
  else previous.nextSibling = known;
  return known;
}

function addNode(table: TableState, parent: NameNode, key: string): NameNode {
  const { slots, prefixes } = table;
  const name = parent === table.root ? key : `${parent.name}.${key}`;
  const inside = `${name}.`;
  const hasSlotsBelow = [...slots.keys()].some((field) => field.startsWith(inside));
  const reaching = [...prefixes.entries()].filter(
    ([, { prefix }]) => prefix.startsWith(inside) || inside.startsWith(prefix),
  );
  const [only, ...others] = reaching;
  const isWhole = !hasSlotsBelow && others.length === 0 && only?.[1].prefix === inside && only[1].isPlain;
  const node: NameNode = {
    name,
    slot: slots.get(name) ?? -1,
    keys: prefixes.flatMap(({ prefix, except, formatKey }, at) =>
      name.startsWith(prefix) && !except.some((other) => name.startsWith(other))
        ? [{ prefix: at, key: formatKey(name) }]
        : [],
    ),
    hasFieldsBelow: hasSlotsBelow || reaching.length > 0,
    wholePrefix: isWhole ? only[0] : -1,
    children: new Map(),
    key,
    firstChild: undefined,
    nextSibling: undefined,
  };
  if (table.knownNames < maxKnownNames) parent.children.set(key, node);
  table.knownNames += 1;
  return node;
}

/** The value of a field; below an array, the value in its first object. Undefined if absent or null. */
export function readFieldValue(
  { values }: FieldValues,
  { slot, above }: FieldRef,
): AttributeValue | undefined {
  const own = values[slot];
  if (own !== undefined) return own ?? undefined;
  for (const { slot, rest } of above) {
    const list = values[slot];
    if (!Array.isArray(list)) continue;
    const first = list.find(isValueObject);
    return first === undefined ? undefined : findFlatValue(flattenDocument(first), rest);
  }
  return undefined;
}

const emptyList: readonly ValueObject[] = [];

/** The objects of a list; a single object without brackets counts as a list of one. */
export function readFieldList(
  { values, byPrefix }: FieldValues,
  { slot, prefix }: ListRef,
): readonly ValueObject[] {
  const list = values[slot];
  if (Array.isArray(list)) return list.filter(isValueObject);
  const own = byPrefix[prefix];
  return own === undefined ? emptyList : [own.attributes];
}

/** Adds an attribute unless its key exists. */
export function addAttribute(to: Record<string, AttributeValue>, key: string, value: AttributeValue): void {
  if (Object.hasOwn(to, key)) return;
  // An assignment would set the prototype.
  if (key === "__proto__")
    Object.defineProperty(to, key, { value, enumerable: true, configurable: true, writable: true });
  else to[key] = value;
}

function isShallow(object: ValueObject): object is Record<string, AttributeValue> {
  for (const key in object) {
    const value = object[key];
    if (isValueObject(value) && !isEmptyObject(value)) return false;
  }
  return true;
}
