// POST /api/v2/logs/lines with `Accept: application/x-ndjson` or `text/csv`: all lines of the range behind the cursor,
// as the concatenation of all pages would be. What cannot be answered in full is refused before the first byte: the
// candidates are counted first. A failure after it breaks the connection off, so that a client sees the cut.
import * as z from "zod";
import { reportRead } from "../../core/async/read-progress.ts";
import type { LogLine } from "../../core/rows.ts";
import { type CsvCell, printCsv } from "../runtime/csv.ts";
import type { Context, Representation, RowBatch } from "../runtime/operation.ts";
import {
  computeTieLimit,
  countLineChars,
  type ExportQuery,
  groupByTimestamp,
  type LinesRequest,
  limitExport,
  maxChunkChars,
  narrowToCursor,
  printLine,
  resolveRange,
  selectLogs,
  toLinePage,
} from "./lines.ts";

const exportDescription =
  "All lines of the range behind the cursor, in `order`; `per_page` means nothing here. An answer that breaks off after its first byte is not ended: the chunked encoding lacks its end.";

export const ndjson: Representation<LinesRequest> = {
  name: "logs.ndjson",
  mediaType: "application/x-ndjson",
  scope: "export",
  answer: z.string().meta({
    description: `${exportDescription} A JSON object a line, as in the JSON answer.`,
    examples: ['{"id":"logs-app/1"}\n'],
  }),
  run: (request, context) => ({
    headers: { "Content-Type": "application/x-ndjson; charset=utf-8" },
    pieces: printAllLines(request, context, (lines) =>
      lines.reduce((text, { line, stamp }) => `${text}${printLine(line, stamp)}\n`, ""),
    ),
  }),
};

const columns = ["id", "timestamp", "source_id", "severity", "message", "hostname", "group", "json"] as const;

export const csv: Representation<LinesRequest> = {
  name: "logs.csv",
  mediaType: "text/csv",
  scope: "export",
  answer: z.string().meta({
    description: `${exportDescription} RFC 4180 with the columns ${columns.join(", ")}; a cell that a spreadsheet would take for a formula begins with an apostrophe.`,
    examples: [`${columns.join(",")}\r\n`],
  }),
  run: (request, context) => ({
    headers: {
      "Content-Type": "text/csv; charset=utf-8; header=present",
      "Content-Disposition": 'attachment; filename="logs.csv"',
    },
    pieces: addHeader(printAllLines(request, context, (lines) => printCsv(lines.map(toCsvCells)))),
  }),
};

interface StampedLine {
  readonly line: LogLine;
  readonly stamp: string;
}

function toCsvCells({ line, stamp }: StampedLine): readonly CsvCell[] {
  const { id, source_id, severity, message, hostname, group, json } = line;
  return [id, stamp, source_id, severity, message, hostname, group, json];
}

async function* addHeader(pieces: AsyncIterable<RowBatch>): AsyncGenerator<RowBatch> {
  let header = printCsv([columns]);
  for await (const { count, text } of pieces) {
    yield { count, text: header + text };
    header = "";
  }
  if (header !== "") yield { count: 0, text: header };
}

/** Of a piece: printing one never holds the event loop up, two can be on their way, and a slow client takes one in time. */
const linesPerChunk = 250;

async function* printAllLines(
  request: LinesRequest,
  context: Context,
  print: (lines: readonly StampedLine[]) => string,
): AsyncGenerator<RowBatch> {
  const { site, store, sources, filter } = selectLogs(request, context);
  const page = { ...toLinePage(request, context.limits), perPage: Number.POSITIVE_INFINITY };
  const range = narrowToCursor(resolveRange(request, site, context.now()), page);
  if (range === undefined) return;
  const query: ExportQuery = {
    sources,
    range,
    filter,
    order: page.order,
    tieLimit: computeTieLimit(context.limits),
    held: context.held,
    progressed: (documents) => {
      reportRead(context.progress, documents, "documents");
      context.reportProgress?.();
    },
  };
  const counted = await limitExport(store, query, context.limits.export, context.signal);
  let lines: StampedLine[] = [];
  let weight = 0;
  for await (const batch of store.lines(counted, context.signal)) {
    for (const { stamp, first, end } of groupByTimestamp(batch, page)) {
      for (const line of batch.slice(first, end)) {
        lines.push({ line, stamp });
        weight += countLineChars(line);
        if (lines.length < linesPerChunk && weight < maxChunkChars) continue;
        yield { count: lines.length, text: print(lines) };
        lines = [];
        weight = 0;
      }
    }
  }
  if (lines.length > 0) yield { count: lines.length, text: print(lines) };
}
