// POST /api/v2/logs/lines with `Accept: application/x-ndjson` or `text/csv`: all lines of the range behind the cursor,
// as the concatenation of all pages would be. What cannot be answered in full is refused before the first byte: the
// candidates are counted first. A failure after it breaks the connection off, so that a client sees the cut.
import * as z from "zod";
import { Refused } from "../../core/errors.ts";
import type { LogLine } from "../../core/rows.ts";
import type { LogQuery } from "../../store/store.ts";
import { type Cell, printCsv } from "../runtime/csv.ts";
import type { Context, Representation, Rows } from "../runtime/operation.ts";
import {
  cut,
  heaviest,
  type LinesRequest,
  narrow,
  pageOf,
  printLine,
  rangeOf,
  selectLogs,
  tieLimit,
  weightOf,
} from "./lines.ts";

const whole =
  "All lines of the range behind the cursor, in `order`; `per_page` means nothing here. An answer that breaks off after its first byte is not ended: the chunked encoding lacks its end.";

export const ndjson: Representation<LinesRequest> = {
  name: "logs.ndjson",
  mediaType: "application/x-ndjson",
  answer: z.string().meta({
    description: `${whole} A JSON object a line, as in the JSON answer.`,
    examples: ['{"id":"logs-app/1"}\n'],
  }),
  run: (request, context) => ({
    headers: { "Content-Type": "application/x-ndjson; charset=utf-8" },
    pieces: readAll(request, context, (lines) =>
      lines.reduce((text, { line, stamp }) => `${text}${printLine(line, stamp)}\n`, ""),
    ),
  }),
};

const columns = ["id", "timestamp", "source_id", "severity", "message", "hostname", "group", "json"] as const;

export const csv: Representation<LinesRequest> = {
  name: "logs.csv",
  mediaType: "text/csv",
  answer: z.string().meta({
    description: `${whole} RFC 4180 with the columns ${columns.join(", ")}; a cell that a spreadsheet would take for a formula begins with an apostrophe.`,
    examples: [`${columns.join(",")}\r\n`],
  }),
  run: (request, context) => ({
    headers: {
      "Content-Type": "text/csv; charset=utf-8; header=present",
      "Content-Disposition": 'attachment; filename="logs.csv"',
    },
    pieces: withHeader(readAll(request, context, (lines) => printCsv(lines.map(cellsOf)))),
  }),
};

interface Stamped {
  readonly line: LogLine;
  readonly stamp: string;
}

function cellsOf({ line, stamp }: Stamped): readonly Cell[] {
  const { id, source_id, severity, message, hostname, group, json } = line;
  return [id, stamp, source_id, severity, message, hostname, group, json];
}

async function* withHeader(pieces: AsyncIterable<Rows>): AsyncGenerator<Rows> {
  let header = printCsv([columns]);
  for await (const { count, text } of pieces) {
    yield { count, text: header + text };
    header = "";
  }
  if (header !== "") yield { count: 0, text: header };
}

/** The most that every server counts. */
const mostCounted = 2_000_000_000;
/** Of a piece: printing one never holds the event loop up, two can be on their way, and a slow client takes one in time. */
const linesOfPiece = 250;

async function* readAll(
  request: LinesRequest,
  context: Context,
  print: (lines: readonly Stamped[]) => string,
): AsyncGenerator<Rows> {
  const { site, store, sources, filter } = selectLogs(request, context);
  const page = { ...pageOf(request, context.limits), perPage: Number.POSITIVE_INFINITY };
  const range = narrow(rangeOf(request, site, context.now()), page);
  if (range === undefined) return;
  const limit = Math.min(context.limits.export, mostCounted);
  const query: LogQuery = {
    sources,
    range,
    filter,
    order: page.order,
    wanted: mostCounted,
    documentLimit: limit,
    tieLimit: tieLimit(context.limits),
    progressed: context.progressed,
  };
  // Counted by documents alone: how many lines one millisecond holds is only met by reading.
  const fits = await store.fits?.({ ...query, tieLimit: limit }, context.signal);
  if (fits === false) throw tooLarge(limit);
  // What was counted may have grown since, and that is no reason to break off.
  const counted = fits === true ? { ...query, documentLimit: Number.MAX_SAFE_INTEGER } : query;
  let lines: Stamped[] = [];
  let weight = 0;
  for await (const batch of store.lines(counted, context.signal)) {
    for (const { stamp, first, end } of cut(batch, page)) {
      for (const line of batch.slice(first, end)) {
        lines.push({ line, stamp });
        weight += weightOf(line);
        if (lines.length < linesOfPiece && weight < heaviest) continue;
        yield { count: lines.length, text: print(lines) };
        lines = [];
        weight = 0;
      }
    }
  }
  if (lines.length > 0) yield { count: lines.length, text: print(lines) };
}

function tooLarge(limit: number): Refused {
  const message = `The export would have to read more than ${limit} documents; narrow the range, the query or the sources`;
  return new Refused("result_too_large", message, { limit });
}
