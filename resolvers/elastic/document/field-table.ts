// What a layout asks of its documents, compiled: a tree of the names that documents have, each with what becomes of its
// value. Documents of an index have the same names over and over, so a name is put together, and compared with those of
// the profile, only when it is first met. `flat.ts` is the definition: a name's value is what `findFlatValue` finds in the
// document's flat form, and what lies below a prefix are the flat form's values there, in its order.
import type { AttributeValue } from "../../../src/core/rows.ts";
import { findFlatValue, flattenDocument, isEmptyObject, isValueObject, type ValueObject } from "./flatten.ts";

/** A name that is asked for, and the names above it, at which an array may stand. */
export interface FieldRef {
  readonly slot: number;
  readonly above: readonly { readonly slot: number; readonly rest: string }[];
}
/** A name at which a list of objects is looked for, or one of them without its brackets. */
interface ListRef {
  readonly slot: number;
  readonly below: number;
}
/** What was asked of one document: values by slot, and what lies below each prefix. */
export interface FieldValues {
  readonly values: readonly (AttributeValue | undefined)[];
  readonly byPrefix: readonly (PrefixValues | undefined)[];
}
interface PrefixValues {
  readonly attributes: Record<string, AttributeValue>;
  /** Whether it is an object of the document itself, which nobody may change. */
  readonly shared: boolean;
}

export interface FieldTable {
  /** Names are asked for before the first document is read. */
  addField(name: string): FieldRef;
  addList(name: string): ListRef;
  /** The number of a prefix; `keyOf` tells the key of a name below it, by default the rest of the name. */
  addPrefix(addPrefix: string, except?: readonly string[], keyOf?: (name: string) => string): number;
  read(document: ValueObject): FieldValues;
}

interface NameNode {
  readonly text: string;
  /** -1 where nobody asks for it. */
  readonly slot: number;
  readonly keys: readonly { readonly prefix: number; readonly key: string }[];
  /** Whether anything below it is asked for. */
  readonly leads: boolean;
  /** The prefix whose attributes an object here is, if it has no objects in it; -1 where more is asked of it. */
  readonly wholePrefix: number;
  readonly next: Map<string, NameNode>;
  readonly key: string;
  // What came next in the last document, which in most is what comes next again: looking it up costs a tenth of reading.
  firstInside: NameNode | undefined;
  behind: NameNode | undefined;
}

/** Names beyond this are looked at anew each time: keys may be of a stranger's making. */
const maxKnownNames = 10_000;

export function createFieldTable(): FieldTable {
  const slots = new Map<string, number>();
  const prefixes: {
    readonly prefix: string;
    readonly except: readonly string[];
    readonly keyOf: (name: string) => string;
    /** Whether keys are the rests of names, and all of them. */
    readonly plain: boolean;
  }[] = [];
  const notYet = { firstInside: undefined, behind: undefined };
  const root: NameNode = {
    text: "",
    slot: -1,
    keys: [],
    leads: true,
    wholePrefix: -1,
    next: new Map(),
    key: "",
    ...notYet,
  };
  let known = 0;
  /** What a document without a single name has. */
  let blank: FieldValues | undefined;

  function slotOf(name: string): number {
    const slot = slots.get(name) ?? slots.size;
    slots.set(name, slot);
    return slot;
  }

  function prefix(prefix: string, except: readonly string[] = [], keyOf?: (name: string) => string): number {
    const rest = (name: string) => name.slice(prefix.length);
    const plain = keyOf === undefined && except.length === 0;
    return prefixes.push({ prefix, except, keyOf: keyOf ?? rest, plain }) - 1;
  }

  function meet(above: NameNode, key: string): NameNode {
    const text = above === root ? key : `${above.text}.${key}`;
    const inside = `${text}.`;
    const isAsked = [...slots.keys()].some((asked) => asked.startsWith(inside));
    const reaching = prefixes.flatMap(({ prefix }, at) =>
      prefix.startsWith(inside) || inside.startsWith(prefix) ? [at] : [],
    );
    const [only = -1, ...others] = reaching;
    const isWhole = !isAsked && others.length === 0 && prefixes[only]?.prefix === inside;
    const name: NameNode = {
      text,
      slot: slots.get(text) ?? -1,
      keys: prefixes.flatMap(({ prefix, except, keyOf }, at) =>
        text.startsWith(prefix) && !except.some((other) => text.startsWith(other))
          ? [{ prefix: at, key: keyOf(text) }]
          : [],
      ),
      leads: isAsked || reaching.length > 0,
      wholePrefix: isWhole && prefixes[only]?.plain ? only : -1,
      next: new Map(),
      key,
      ...notYet,
    };
    if (known < maxKnownNames) above.next.set(key, name);
    known += 1;
    return name;
  }

  /** The name of a key that was not expected behind another, or first of all. */
  function find(above: NameNode, before: NameNode | undefined, key: string): NameNode {
    const known = above.next.get(key);
    if (known === undefined) return meet(above, key);
    if (before === undefined) above.firstInside = known;
    else before.behind = known;
    return known;
  }

  function visit(
    object: ValueObject,
    above: NameNode,
    values: (AttributeValue | undefined)[],
    below: (PrefixValues | undefined)[],
  ): void {
    let before: NameNode | undefined;
    for (const key in object) {
      const value = object[key];
      if (value === undefined) continue;
      const expected: NameNode | undefined = before === undefined ? above.firstInside : before.behind;
      const name: NameNode = expected?.key === key ? expected : find(above, before, key);
      before = name;
      if (isValueObject(value) && !isEmptyObject(value)) {
        if (name.wholePrefix >= 0 && below[name.wholePrefix] === undefined && isShallow(value))
          below[name.wholePrefix] = { attributes: value, shared: true };
        else if (name.leads) visit(value, name, values, below);
        continue;
      }
      // Where two ways lead to one name the first counts.
      if (name.slot >= 0 && values[name.slot] === undefined) values[name.slot] = value;
      for (const { prefix, key } of name.keys) {
        const found = below[prefix];
        const own = found === undefined || found.shared ? { ...found?.attributes } : found.attributes;
        if (own !== found?.attributes) below[prefix] = { attributes: own, shared: false };
        addAttribute(own, key, value);
      }
    }
  }

  return {
    addField(name) {
      const above: { slot: number; rest: string }[] = [];
      for (let dot = name.indexOf("."); dot > 0; dot = name.indexOf(".", dot + 1)) {
        above.push({ slot: slotOf(name.slice(0, dot)), rest: name.slice(dot + 1) });
      }
      return { slot: slotOf(name), above };
    },
    addList(name) {
      return { slot: slotOf(name), below: prefix(`${name}.`) };
    },
    addPrefix: prefix,
    read(document) {
      blank ??= {
        values: Array.from({ length: slots.size }, () => undefined),
        byPrefix: Array.from({ length: prefixes.length }, () => undefined),
      };
      const values = [...blank.values];
      const below = [...blank.byPrefix];
      visit(document, root, values, below);
      return { values, byPrefix: below };
    },
  };
}

/** The value at a name; below an array, that of its first object. Null is nothing. */
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

/** The objects of a list; a list of one may be written without its brackets. */
export function readFieldList(
  { values, byPrefix: below }: FieldValues,
  { slot, below: inside }: ListRef,
): readonly ValueObject[] {
  const list = values[slot];
  if (Array.isArray(list)) return list.filter(isValueObject);
  const own = below[inside];
  return own === undefined ? emptyList : [own.attributes];
}

/** Adds an attribute where its key is not there yet. */
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
