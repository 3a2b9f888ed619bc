// Texts of reports in a terminal.

/** Prints cells in columns two spaces apart. The last cell of a row widens no column. */
export function alignColumns(rows: readonly (readonly string[])[]): readonly string[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.slice(0, -1).entries()) {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    }
  }
  return rows.map((row) =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join("  "),
  );
}

export function formatCount(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
