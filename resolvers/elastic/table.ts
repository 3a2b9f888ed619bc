// What a layout asks of its documents, compiled: a tree of the names that documents have, each with what becomes of its
// value. Documents of an index have the same names over and over, so a name is put together, and compared with those of
// the profile, only when it is first met. `flat.ts` is the definition: a name's value is what `lookUp` finds in the
// document's flat form, and what lies below a prefix are the flat form's values there, in its order.
import type { Value } from "../../src/model.ts";
import { flatten, isEmpty, isJson, type Json, lookUp } from "./flat.ts";

/** A name that is asked for, and the names above it, at which an array may stand. */
export interface Place {
  readonly slot: number;
  readonly above: readonly { readonly slot: number; readonly rest: string }[];
}
/** A name at which a list of objects is looked for, or one of them without its brackets. */
export interface ListPlace {
  readonly slot: number;
  readonly below: number;
}
/** What was asked of one document: values by slot, and by prefix the keys and values below it. */
export interface Fields {
  readonly values: readonly (Value | undefined)[];
  readonly below: readonly (Below | undefined)[];
}
interface Below {
  readonly keys: string[];
  readonly values: Value[];
}

export interface Table {
  /** Names are asked for before the first document is read. */
  place(name: string): Place;
  list(name: string): ListPlace;
  /** The number of a prefix; `keyOf` tells under which key the value at a name below it stands. */
  prefix(prefix: string, except: readonly string[], keyOf: (name: string) => string): number;
  read(document: Json): Fields;
}

interface Name {
  readonly text: string;
  /** -1 where nobody asks for it. */
  readonly slot: number;
  readonly keys: readonly { readonly prefix: number; readonly key: string }[];
  /** Whether anything below it is asked for. */
  readonly leads: boolean;
  readonly next: Map<string, Name>;
}

/** Names beyond this are looked at anew each time: keys may be of a stranger's making. */
const mostNames = 10_000;

export function createTable(): Table {
  const slots = new Map<string, number>();
  const prefixes: { prefix: string; except: readonly string[]; keyOf: (name: string) => string }[] = [];
  const root: Name = { text: "", slot: -1, keys: [], leads: true, next: new Map() };
  let known = 0;

  function slotOf(name: string): number {
    const slot = slots.get(name) ?? slots.size;
    slots.set(name, slot);
    return slot;
  }

  function prefix(prefix: string, except: readonly string[], keyOf: (name: string) => string): number {
    return prefixes.push({ prefix, except, keyOf }) - 1;
  }

  function meet(above: Name, key: string): Name {
    const text = above === root ? key : `${above.text}.${key}`;
    const inside = `${text}.`;
    const name: Name = {
      text,
      slot: slots.get(text) ?? -1,
      keys: prefixes.flatMap(({ prefix, except, keyOf }, at) =>
        text.startsWith(prefix) && !except.some((other) => text.startsWith(other))
          ? [{ prefix: at, key: keyOf(text) }]
          : [],
      ),
      leads:
        [...slots.keys()].some((asked) => asked.startsWith(inside)) ||
        prefixes.some(({ prefix }) => prefix.startsWith(inside) || inside.startsWith(prefix)),
      next: new Map(),
    };
    if (known < mostNames) above.next.set(key, name);
    known += 1;
    return name;
  }

  function visit(
    object: Json,
    above: Name,
    values: (Value | undefined)[],
    below: (Below | undefined)[],
  ): void {
    for (const key in object) {
      const value = object[key];
      if (value === undefined) continue;
      const name = above.next.get(key) ?? meet(above, key);
      if (isJson(value) && !isEmpty(value)) {
        if (name.leads) visit(value, name, values, below);
        continue;
      }
      // Where two ways lead to one name the first counts.
      if (name.slot >= 0 && values[name.slot] === undefined) values[name.slot] = value;
      for (const { prefix, key } of name.keys) {
        const found = below[prefix];
        if (found === undefined) below[prefix] = { keys: [key], values: [value] };
        else {
          found.keys.push(key);
          found.values.push(value);
        }
      }
    }
  }

  return {
    place(name) {
      const above: { slot: number; rest: string }[] = [];
      for (let dot = name.indexOf("."); dot > 0; dot = name.indexOf(".", dot + 1)) {
        above.push({ slot: slotOf(name.slice(0, dot)), rest: name.slice(dot + 1) });
      }
      return { slot: slotOf(name), above };
    },
    list(name) {
      const inside = `${name}.`;
      return { slot: slotOf(name), below: prefix(inside, [], (text) => text.slice(inside.length)) };
    },
    prefix,
    read(document) {
      const values = new Array<Value | undefined>(slots.size).fill(undefined);
      const below = new Array<Below | undefined>(prefixes.length).fill(undefined);
      visit(document, root, values, below);
      return { values, below };
    },
  };
}

/** The value at a name; below an array, that of its first object. Null is nothing. */
export function valueAt({ values }: Fields, { slot, above }: Place): Value | undefined {
  const own = values[slot];
  if (own !== undefined) return own ?? undefined;
  for (const { slot, rest } of above) {
    const list = values[slot];
    if (!Array.isArray(list)) continue;
    const first = list.find(isJson);
    return first === undefined ? undefined : lookUp(flatten(first), rest);
  }
  return undefined;
}

const nothing: readonly Json[] = [];

/** The objects of a list; a list of one may be written without its brackets. */
export function listAt({ values, below }: Fields, { slot, below: inside }: ListPlace): readonly Json[] {
  const list = values[slot];
  if (Array.isArray(list)) return list.filter(isJson);
  if (below[inside] === undefined) return nothing;
  const own: Record<string, Value> = {};
  addBelow(own, { values, below }, inside);
  return [own];
}

/** Adds what lies below a prefix to attributes that lack it. */
export function addBelow(to: Record<string, Value>, { below }: Fields, prefix: number): void {
  const found = below[prefix];
  if (found === undefined) return;
  const { keys, values } = found;
  for (let at = 0; at < keys.length; at++) {
    const [key, value] = [keys[at], values[at]];
    if (key !== undefined && value !== undefined) add(to, key, value);
  }
}

/** Adds an attribute where its key is not there yet. */
export function add(to: Record<string, Value>, key: string, value: Value): void {
  if (Object.hasOwn(to, key)) return;
  // An assignment would set the prototype.
  if (key === "__proto__")
    Object.defineProperty(to, key, { value, enumerable: true, configurable: true, writable: true });
  else to[key] = value;
}
