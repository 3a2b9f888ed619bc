// Tables as CSV, for those who open them in a spreadsheet. Written by hand: an export prints every line through it, and
// the library's writer takes twice as long.

export type CsvCell = string | number | undefined;

/**
 * What a spreadsheet takes for the beginning of a formula, also in its full-width forms. Programs that import a file trim
 * cells first: so blanks, byte order marks and whatever is not seen may stand before the sign.
 */
const formula = /^(?:[\t\r\n]|[\s\p{C}\p{Z}]*[=+\-@\uff1d\uff0b\uff0d\uff20])/u;
const special = /[",\r\n]/;

/**
 * Lines of RFC 4180, each with its end. A cell that a spreadsheet would take for a formula gets an apostrophe before
 * it; numbers are numbers, also negative ones. An absent cell is empty.
 */
export function printCsv(lines: readonly (readonly CsvCell[])[]): string {
  return lines.reduce((text, cells) => `${text}${cells.map(printCell).join(",")}\r\n`, "");
}

function printCell(cell: CsvCell): string {
  if (typeof cell !== "string") return cell === undefined ? "" : String(cell);
  const text = formula.test(cell) ? `'${cell}` : cell;
  // A pattern and not `replaceAll`, which puts its answer together from pieces.
  return special.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
