// Functions for plain values of unknown shape, such as a YAML file holds.

export function mapValues<In, Out>(
  record: Readonly<Record<string, In>>,
  change: (value: In, key: string) => Out,
): Record<string, Out> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value, key)]));
}

/** Returns all texts within a value. */
export function collectTexts(value: unknown): readonly string[] {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(collectTexts) : [];
}

/** Freezes plain objects and lists deeply. Instances of classes, which only a kind of backend makes, stay as they are. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== Array.prototype && prototype !== null) return value;
  for (const child of Object.values(value)) deepFreeze(child);
  return Object.freeze(value);
}

/** A map as it is; an empty one for any other value. */
export function toMapping(value: unknown): Readonly<Record<string, unknown>> {
  return isMapping(value) ? value : noEntries;
}

const noEntries = Object.freeze({});

export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
