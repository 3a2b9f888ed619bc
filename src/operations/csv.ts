// Tables as CSV, for those who open them in a spreadsheet.
import { stringify } from "csv-stringify/sync";

export type Cell = string | number | undefined;

/**
 * Lines of RFC 4180, each with its end. A cell that a spreadsheet would take for a formula gets an apostrophe before
 * it; numbers are numbers, also negative ones. An absent cell is empty.
 */
export function printCsv(lines: readonly (readonly Cell[])[]): string {
  return stringify(
    lines.map((line) => [...line]),
    {
      record_delimiter: "windows",
      escape_formulas: true,
      // Left to itself it quotes only the line end that it writes.
      quoted_match: /[\r\n]/,
    },
  );
}
