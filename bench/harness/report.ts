// What a measurement says: medians with an interval, floors, and the one table.

export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  /** 95 % interval of the median over rounds, where there were rounds. */
  readonly interval?: readonly [low: number, high: number] | undefined;
  /** The most that the issue allows. */
  readonly floor?: number | undefined;
  readonly note?: string | undefined;
}

export function calculateQuantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const position = (sorted.length - 1) * share;
  const low = sorted[Math.floor(position)] ?? Number.NaN;
  const high = sorted[Math.ceil(position)] ?? low;
  return low + (high - low) * (position - Math.floor(position));
}
export function calculateMedian(values: readonly number[]): number {
  return calculateQuantile(values, 0.5);
}

/** Where 95 % of the medians of resampled rounds lie. Rounds are few and skewed, so no normal law is assumed. */
function calculateInterval(rounds: readonly number[]): readonly [number, number] {
  let state = 1;
  function below(limit: number): number {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 4_294_967_296) * limit);
  }
  const medians = Array.from({ length: 2_000 }, () => {
    return calculateMedian(rounds.map(() => rounds[below(rounds.length)] ?? Number.NaN));
  });
  return [calculateQuantile(medians, 0.025), calculateQuantile(medians, 0.975)];
}

/** The median over rounds, with its interval. */
export function summarise(rounds: readonly number[]): Pick<Figure, "value" | "interval"> {
  return { value: calculateMedian(rounds), interval: calculateInterval(rounds) };
}

export function isFloorMet({ value, floor }: Figure): boolean {
  return floor === undefined || value <= floor;
}

function printNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3;
  return value.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d)(?<!\.\d*))/g, ",");
}

export function printTable(figures: readonly Figure[]): string {
  const rows = figures.map((figure) => [
    figure.name,
    `${printNumber(figure.value)} ${figure.unit}`.trimEnd(),
    figure.interval === undefined
      ? ""
      : `${printNumber(figure.interval[0])} – ${printNumber(figure.interval[1])}`,
    figure.floor === undefined ? "" : `≤ ${printNumber(figure.floor)} ${isFloorMet(figure) ? "ok" : "MISS"}`,
    figure.note ?? "",
  ]);
  const all = [["figure", "value", "95 % interval", "floor", ""], ...rows];
  const widths = all[0]?.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0))) ?? [];
  return all
    .map((row) =>
      row
        .map((cell, column) => pad(cell, widths[column] ?? 0, column))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
function pad(cell: string, width: number, column: number): string {
  return column === 1 || column === 2 ? cell.padStart(width) : cell.padEnd(width);
}

export function count(lines: number): string {
  return lines.toLocaleString("en");
}
