// Compares what a page shows of an answer with the answer. `…` stands for what differs from run to run: in a line for any
// text, alone on a line for any lines, in JSON for any value of that kind.

const escapeRegExp = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** @returns what is wrong, `""` if nothing is */
export function matchesOutput(shown: string, real: string): string {
  const lines = real.trimEnd().split("\n");
  let at = 0;
  let mayStandFurther = false;
  for (const line of shown.trimEnd().split("\n")) {
    if (line.trim() === "…") {
      mayStandFurther = true;
      continue;
    }
    const pattern = new RegExp(`^${line.split("…").map(escapeRegExp).join(".*")}$`);
    const found = lines.findIndex((one, position) => position >= at && pattern.test(one.trimEnd()));
    if (found < 0 || (!mayStandFurther && found !== at))
      return `no line ${JSON.stringify(line)} in:\n${real}`;
    at = found + 1;
    mayStandFurther = false;
  }
  return at < lines.length && !mayStandFurther ? `more than is shown:\n${lines.slice(at).join("\n")}` : "";
}

/** @returns what is wrong, `""` if nothing is */
export function matchesShape(shown: string, real: string): string {
  let answer: unknown;
  try {
    answer = JSON.parse(real);
  } catch {
    return `no JSON: ${real.slice(0, 200)}`;
  }
  return compare(JSON.parse(shown), answer, "");
}

/** What is shown may have fewer keys and fewer elements; a text with `…` stands for any other text that fits. */
function compare(shown: unknown, real: unknown, path: string): string {
  if (Array.isArray(shown)) {
    if (!Array.isArray(real)) return `${path}: no list: ${JSON.stringify(real)?.slice(0, 200)}`;
    if (real.length < shown.length) return `${path}: only ${real.length} elements`;
    return (
      shown.map((one, at) => compare(one, real[at], `${path}.${at}`)).find((wrong) => wrong !== "") ?? ""
    );
  }
  if (typeof shown === "object" && shown !== null) {
    if (typeof real !== "object" || real === null) return `${path}: no object: ${JSON.stringify(real)}`;
    const wrong = Object.entries(shown).map(([key, value]) =>
      key in real ? compare(value, real[key as keyof typeof real], `${path}.${key}`) : `${path}: no ${key}`,
    );
    return wrong.find((one) => one !== "") ?? "";
  }
  if (typeof shown === "string" && shown.includes("…")) {
    const pattern = new RegExp(`^${shown.split("…").map(escapeRegExp).join("[^]*")}$`);
    return typeof real === "string" && pattern.test(real) ? "" : `${path}: ${JSON.stringify(real)}`;
  }
  // Figures differ from run to run; their kind does not.
  if (typeof shown === "number") return typeof real === "number" ? "" : `${path}: ${JSON.stringify(real)}`;
  return shown === real ? "" : `${path}: ${JSON.stringify(real)}, shown ${JSON.stringify(shown)}`;
}
