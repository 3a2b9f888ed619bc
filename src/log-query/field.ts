// How a field is written, in both directions. Some names mean more than a key: the four line fields (rule 4), a first
// key `attributes` and a type suffix (rules 8 and 11). A backslash in front of such a key takes that meaning away:
// `\message` is the body's own key `message`, `\attributes.\user_string` is the path spelt so. It is dropped only
// there; anywhere else a backslash that escapes nothing stands for itself.
import { type Field, lineFields, type Path } from "./ast.ts";
import { escapeKey, isGuarded, unescapeKey } from "./scan.ts";

type Keys = readonly [string, ...string[]];

export const typeSuffix = /_(?:string|int|float|bool)$/;

function isLineField(name: string): name is (typeof lineFields)[number] {
  return lineFields.some((field) => field === name);
}

function isAttributesPrefix(keys: Keys, at: number, key: string): boolean {
  return at === 0 && keys.length > 1 && key === "attributes";
}

function hasTypeSuffix(keys: Keys, at: number, key: string): boolean {
  return at === keys.length - 1 && !key.startsWith("\\") && typeSuffix.test(key);
}

/** Whether `key`, written at this place of the field, would mean more than the key itself. */
function hasSpecialMeaning(keys: Keys, at: number, key: string): boolean {
  return (
    (keys.length === 1 && isLineField(key)) ||
    isAttributesPrefix(keys, at, key) ||
    hasTypeSuffix(keys, at, key)
  );
}

function mapKeys<T>(keys: Keys, change: (key: string, at: number) => T): readonly [T, ...T[]] {
  const [first, ...others] = keys;
  return [change(first, 0), ...others.map((key, at) => change(key, at + 1))];
}

/** Contract: a legacy field "begins with `attributes.`, or ends in `_string`, `_int`, `_float` or `_bool`". */
export function isLegacyField(keys: Keys): boolean {
  const end = keys.length - 1;
  return isAttributesPrefix(keys, 0, keys[0]) || hasTypeSuffix(keys, end, keys[end] ?? "");
}

/** Whether some key of the field has a backslash that takes a meaning away. */
export function hasGuardedKey(keys: Keys): boolean {
  return keys.some((key, at) => isGuarded(key) && hasSpecialMeaning(keys, at, key.slice(1)));
}

/** The field that keys as written mean; legacy forms are taken by their letters. */
export function toField(keys: Keys): Field {
  const name = keys[0];
  if (keys.length === 1 && isLineField(name)) return { kind: "line", name };
  const path = mapKeys(keys, (key, at) =>
    unescapeKey(isGuarded(key) && hasSpecialMeaning(keys, at, key.slice(1)) ? key.slice(1) : key),
  );
  return { kind: "json", path };
}

/** The text that `toField` reads as this path; `plain` leaves legacy forms their legacy meaning. */
export function printPath(path: Path, plain: boolean): string {
  const keys = mapKeys(path, (key, at) => {
    const written = escapeKey(key);
    // With a backslash before it a suffix would be a part of the name.
    const isSuffixed =
      plain && at === path.length - 1 && written.startsWith("\\") && typeSuffix.test(written);
    return isSuffixed ? written.slice(1) : written;
  });
  return mapKeys(keys, (key, at) => (!plain && hasSpecialMeaning(keys, at, key) ? `\\${key}` : key)).join(
    ".",
  );
}
