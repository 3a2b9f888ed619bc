// Saved visuals: a published view of a site's metrics, answered by the metrics routes themselves, without a token. What
// is public is decided by the visual's file alone; whatever else is asked for is not found.

import * as z from "zod";
import {
  runInUnownedTurns,
  sortInSteps,
  takeSteps,
  takeTurns,
  yieldToEventLoop,
} from "../../core/async/turns.ts";
import { readOwn } from "../../core/collections.ts";
import { type Issue, NotFound, Refused, Unprocessable } from "../../core/errors.ts";
import { parseJsonInTurns } from "../../core/json/json-in-turns.ts";
import { type Instant, nanosPerMilli, printInstant } from "../../core/time.ts";
import type { PublishedVisuals, Visual, VisualData, VisualRow, VisualSeries } from "../../visuals/visual.ts";
import { type CsvCell, printCsv } from "../runtime/csv.ts";
import { bufferedChars } from "../runtime/lifetime.ts";
import {
  type ChunkedBody,
  type Context,
  createEndpoint,
  type Endpoint,
  type Operation,
  type RowBatch,
} from "../runtime/operation.ts";
import { list } from "./list.ts";
import { visualAnswer } from "./schema.ts";
import { timeseries } from "./timeseries.ts";

const path = z.object({
  id: z.string().meta({
    description: "The visual's id, which is all that protects it.",
    examples: ["9Ubquyg0qqEEfpH6Xefmrg"],
  }),
});
type Path = z.output<typeof path>;

/** Contract, "Saved visuals". */
export const savedVisual: Operation<Path, never> = {
  name: "saved_visuals.get",
  method: "GET",
  path: "/api/v2/saved_visuals/{id}",
  access: "public",
  scope: "none",
  summary: "A saved visual",
  description: "What is published is decided by the visual's file; anything else is a 404.",
  request: path,
  answer: visualAnswer,
  sites: listSites,
  run({ id }, context): ChunkedBody {
    const visual = findVisual(id, context);
    return { pieces: printVisual(visual, computeVisual(visual, context)) };
  },
};

export const savedVisualCsv: Operation<Path, never> = {
  name: "saved_visuals.csv",
  method: "GET",
  path: "/api/v2/saved_visuals/{id}/csv",
  access: "public",
  scope: "none",
  summary: "A saved visual as CSV",
  description:
    "RFC 4180. A series has a column each beside the timestamps, a list the keys of its groups and its selectors.",
  request: path,
  answer: z.string().meta({ description: "The table.", examples: ["timestamp,cpu\r\n"] }),
  mediaType: "text/csv",
  sites: listSites,
  run({ id }, context): ChunkedBody {
    const visual = findVisual(id, context);
    return {
      headers: {
        "Content-Type": "text/csv; charset=utf-8",
        "Content-Disposition": `attachment; filename="${toFileName(visual.title)}.csv"`,
      },
      pieces: printTable(visual, computeVisual(visual, context)),
    };
  },
};

/** One that is no longer configured is refused before anything runs, as what does not exist. */
function listSites({ id }: Path, visuals: PublishedVisuals | undefined): readonly string[] {
  const visual = visuals?.find(id);
  return visual === undefined ? [] : [visual.site];
}

/** @throws {NotFound} */
function findVisual(id: string, { visuals }: Context): Visual {
  const visual = visuals?.find(id);
  if (visual === undefined) throw new NotFound();
  return visual;
}

// ---- The query ----------------------------------------------------------------------------------------------

const endpoints = { series: createEndpoint(timeseries), rows: createEndpoint(list) } as const;

function chooseEndpoint({ query }: Visual): Endpoint {
  return query.group_by === undefined ? endpoints.series : endpoints.rows;
}

function buildBody({ site, range, query }: Visual, now: Instant): unknown {
  const times =
    typeof range === "number"
      ? { from: printInstant((now - BigInt(range) * nanosPerMilli) as Instant), to: printInstant(now) }
      : range;
  return { ...query, ...times, site_id: site };
}

/** What the metrics routes would refuse of the visual's query at any time. */
export function checkVisual(visual: Visual): readonly Issue[] {
  try {
    chooseEndpoint(visual).prepare(buildBody(visual, 0n as Instant));
    return [];
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    return "issues" in error.details ? error.details.issues : [{ path: "", message: error.message }];
  }
}

/** As far as the metrics are named; the routes have checked the rest. */
const selectQuery = z.object({ select: z.array(z.object({ name: z.string() })) });

/** The metrics that the visual asks for, each once. */
export function listMetricNames({ query }: Visual): ReadonlySet<string> {
  return new Set(selectQuery.parse(query).select.map(({ name }) => name));
}

/** An answer that many may ask for, of something that its author chose once: it need not be large. */
const maxAnswerChars = 16 * 1_048_576;

/** The answer of the metrics route as text, in pieces: printed once for all who ask. */
function computeVisual(visual: Visual, { visuals, ...context }: Context): Promise<readonly string[]> {
  if (visuals === undefined) throw new NotFound();
  return visuals.shareAnswer(visual, async (signal, held) => {
    const prepared = chooseEndpoint(visual).prepare(buildBody(visual, context.now()));
    // Who asks first is told nothing of how far it is.
    const result = prepared.run({ ...context, signal, held, progress: undefined });
    if (!("pieces" in result)) throw new TypeError("the metrics routes answer in pieces");
    const texts: string[] = [];
    let size = 0;
    for await (const { text } of result.pieces) {
      texts.push(text);
      size += text.length;
      // No client, for whom a piece would wait, is between this and the next one.
      await yieldToEventLoop();
      if (size <= maxAnswerChars) continue;
      const message =
        "The visual has become too large: its file should ask for fewer series or a coarser resolution";
      throw new Refused("result_too_large", message, { limit: maxAnswerChars });
    }
    return texts;
  });
}

/** The object of the route with what the file says of the visual in front, in the specification's order of keys. */
async function* printVisual(
  { id, title, description, type }: Visual,
  computed: Promise<readonly string[]>,
): AsyncGenerator<RowBatch> {
  const [first = "{}", ...others] = await computed;
  const size = others.reduce((sum, text) => sum + text.length, first.length);
  const head = `${JSON.stringify({ id, title, description, type }).slice(0, -1)},`;
  // What follows is printed already, and shared: it waits for the client alone.
  yield { count: 1, text: head + first.slice(1), ...(size > bufferedChars && { unprinted: 1 }) };
  for (const text of others) yield { count: 0, text };
}

// ---- CSV ----------------------------------------------------------------------------------------------------

/** By the answer that they are made of, for as long as that one is kept. */
const tables = new WeakMap<readonly string[], Promise<readonly RowBatch[]>>();

/** Printed once for all who ask, as the answer itself. */
async function* printTable(visual: Visual, computed: Promise<readonly string[]>): AsyncGenerator<RowBatch> {
  const answer = await computed;
  const table = tables.get(answer) ?? runInUnownedTurns(() => computeTable(visual, answer));
  tables.set(answer, table);
  yield* await table;
}

const linesPerChunk = 500;
/** What is printed in one turn of the event loop: some milliseconds. */
const cellsPerChunk = 20_000;

async function computeTable(visual: Visual, answer: readonly string[]): Promise<readonly RowBatch[]> {
  const { series, rows } = (await parseJsonInTurns(answer.join(""))) as VisualData;
  const lines = series === undefined ? listRowCells(visual, rows ?? []) : await listSeriesCells(series);
  const printed: RowBatch[] = [];
  let piece: (readonly CsvCell[])[] = [];
  let cells = 0;
  const print = () => printed.push({ count: piece.length, text: printCsv(piece) });
  for (const line of lines) {
    piece.push(line);
    cells += line.length;
    if (piece.length < linesPerChunk && cells < cellsPerChunk) continue;
    print();
    piece = [];
    cells = 0;
    await yieldToEventLoop();
  }
  if (piece.length > 0) print();
  return printed;
}

/** A line for each time that some series has a point at; a series without one has an empty cell. */
async function listSeriesCells(series: readonly VisualSeries[]): Promise<Iterable<readonly CsvCell[]>> {
  const times = new Set<string>();
  for await (const some of takeTurns(listTimes(series))) for (const time of some) times.add(time);
  // All have the same form, so that their order as text is that of time.
  const sorted = await takeSteps(sortInSteps([...times], (a, b) => (a < b ? -1 : 1)));
  return alignSeries(series, sorted);
}

function* listTimes(series: readonly VisualSeries[]): Generator<string> {
  for (const { data } of series) for (const { timestamp } of data) yield timestamp;
}

function* alignSeries(
  series: readonly VisualSeries[],
  times: readonly string[],
): Generator<readonly CsvCell[]> {
  yield ["timestamp", ...series.map(({ id }) => id)];
  // Points are in the order of time: those before the next one of each series are in lines before.
  const next = new Uint32Array(series.length);
  for (const time of times) {
    const line: CsvCell[] = [time];
    for (const [column, { data }] of series.entries()) {
      const at = next[column] ?? 0;
      const point = data[at];
      const isHere = point?.timestamp === time;
      if (isHere) next[column] = at + 1;
      line.push(isHere ? point.value : undefined);
    }
    yield line;
  }
}

/** As far as the columns need it; the routes have checked the rest. */
const listQuery = z.object({
  select: z.array(z.object({ id: z.string() })),
  group_by: z.array(z.union([z.string().transform(() => "Name"), z.record(z.string(), z.string())])),
});

/** The keys of the groups, then the ids of the selectors, as the file names them and whether or not a row has them. */
function* listRowCells({ query }: Visual, rows: readonly VisualRow[]): Generator<readonly CsvCell[]> {
  const { select, group_by } = listQuery.parse(query);
  const groups = group_by.flatMap((group) => (typeof group === "string" ? group : Object.values(group)));
  const ids = select.map(({ id }) => id);
  yield [...groups, ...ids];
  for (const { group, data } of rows) {
    yield [...groups.map((key) => readOwn(group, key)), ...ids.map((id) => readOwn(data, id))];
  }
}

/** Of the title what every file system takes, in lower case. */
function toFileName(title: string): string {
  const safe = title
    .normalize("NFKD")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "");
  return safe.slice(0, 80) || "visual";
}
