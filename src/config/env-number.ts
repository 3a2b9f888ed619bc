// Numbers of a configuration as text: what ${NAME} puts in is always that.

/** The number that a text spells in digits, with or without a fraction; anything else as it is, for a schema to judge. */
export function parseNumeral(value: unknown): unknown {
  return typeof value === "string" && /^\d{1,15}(?:\.\d{1,15})?$/.test(value) ? Number(value) : value;
}
