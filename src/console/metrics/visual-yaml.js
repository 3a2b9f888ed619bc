// A chart as the file of a published visual. JSON is YAML too, so what could need quotes is written as JSON.

/**
 * @typedef {{
 *   readonly id: string, readonly title: string, readonly type: "line" | "area", readonly site: string,
 *   readonly range: { readonly last: string } | { readonly from: string, readonly to: string },
 *   readonly resolution: string | undefined, readonly limit: number, readonly select: readonly object[],
 * }} VisualFile
 */

/** 128 random bits, the least that nobody can guess. */
export function generateVisualId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

/** @param {VisualFile} file */
export function printVisual({ id, title, type, site, range, resolution, limit, select }) {
  const times =
    "last" in range
      ? [`range: ${range.last}`]
      : [`from: ${JSON.stringify(range.from)}`, `to: ${JSON.stringify(range.to)}`];
  return [
    `id: ${JSON.stringify(id)}`,
    `title: ${JSON.stringify(title)}`,
    `type: ${type}`,
    `site: ${JSON.stringify(site)}`,
    ...times,
    ...(resolution === undefined ? [] : [`resolution: ${resolution}`]),
    `limit: ${limit}`,
    "select:",
    ...select.map((one) => `  - ${JSON.stringify(one)}`),
    "",
  ].join("\n");
}
