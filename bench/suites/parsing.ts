// How long the parser takes for long log queries.
import { parse } from "../../src/log-query/parse.ts";
import { options } from "../harness/options.ts";
import { calculateMedian, calculateQuantile, type Figure } from "../harness/report.ts";

/** The most that it may take (README, "What it promises"). */
const floors = { parseMillis: 1 };

/** A query of about 4 kB that has a bit of everything. */
function generateLongQuery(seed: number): string {
  const parts: string[] = [];
  for (let at = seed; parts.join(" AND ").length < 4_000; at++) {
    parts.push(
      [
        `severity=error`,
        `(message:"timed out ${at}" OR hostname!=web-${at})`,
        `http.response.status_code>=${400 + (at % 100)}`,
        `labels.some\\.dotted\\.key!:"a \\"quoted\\" value ${at}"`,
        `((a.b.${at}=x OR c<${at}.5e3) AND (d:é OR term${at}))`,
      ][at % 5] ?? "",
    );
  }
  return parts.join(" AND ").slice(0, 4_200);
}

export function measureParsing(): readonly Figure[] {
  const queries = Array.from({ length: 50 }, (_, seed) => generateLongQuery(seed));
  const times: number[] = [];
  for (let run = 0; run < (options.quick ? 2_500 : 10_000); run++) {
    const query = queries[run % queries.length] ?? "";
    const begin = performance.now();
    parse(query);
    times.push(performance.now() - begin);
  }
  const measured = times.slice(500);
  const average = queries.reduce((sum, { length }) => sum + length, 0) / queries.length;
  return [
    {
      name: "parse of a 4 kB query: p99",
      unit: "ms",
      value: calculateQuantile(measured, 0.99),
      floor: floors.parseMillis,
      note: `median ${calculateMedian(measured).toFixed(3)} ms, the very first ${times[0]?.toFixed(1)} ms, ${average.toFixed(0)} characters`,
    },
  ];
}
