// Texts of reports in a terminal.
import { durationUnits, type Instant, nanosPerMilli } from "../../core/time.ts";
import type { InspectionResult } from "./site-inspections.ts";

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

/** How long a time lies before or after now, in the largest unit of which there is at least one. */
export function printAge(time: Instant, now: Instant): string {
  const age = Math.abs(Number((now - time) / nanosPerMilli));
  const [unit, length] = durationUnits.find(([, length]) => age >= length) ?? ["ms", 1];
  return `${Math.floor(age / length)} ${unit}`;
}

export function printNewest({ what, time }: NonNullable<InspectionResult["newest"]>, now: Instant): string {
  if (time === undefined) return `no ${what}s`;
  return `newest ${what} ${printAge(time, now)} ${time > now ? "ahead of this clock" : "ago"}`;
}
