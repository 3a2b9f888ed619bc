// Prints written series as OpenMetrics text, from which promtool creates blocks.
import type { Labels, WrittenSeries } from "./kubernetes-exporters.ts";

export function printOpenMetrics(series: readonly WrittenSeries[]): string {
  const lines = series.flatMap(({ labels, samples }) => {
    const { __name__: name, ...rest } = labels;
    const key = `${name}{${printLabels(rest)}}`;
    return samples.map(([time, value]) => `${key} ${value} ${time / 1_000}`);
  });
  return `${lines.join("\n")}\n# EOF\n`;
}

function printLabels(labels: Labels): string {
  const quote = (text: string): string =>
    `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${quote(value)}`)
    .join(",");
}
