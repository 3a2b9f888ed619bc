// Saved visuals: a published view of a site's metrics, answered by the metrics routes themselves, without a token. What
// is public is decided by the visual's file alone; whatever else is asked for is not found.
import * as z from "zod";
import { type Issue, NotFound, Refused, Unprocessable } from "../../core/errors.ts";
import { type Instant, nanosPerMilli, printInstant } from "../../core/time.ts";
import type { Answer, AnswerRow, AnswerSeries, Visual, Visuals } from "../../visuals/visual.ts";
import { type Cell, printCsv } from "../runtime/csv.ts";
import {
  type Context,
  type Endpoint,
  endpoint,
  type Operation,
  type Printed,
  type Rows,
} from "../runtime/operation.ts";
import { list, timeseries } from "./metrics.ts";
import { visualAnswer } from "./schema.ts";

interface VisualAnswer extends Answer {
  readonly id: string;
  readonly title: string;
  readonly description: string;
  readonly type: string;
}

const path = z.object({
  id: z.string().meta({
    description: "The visual's id, which is all that protects it.",
    examples: ["9Ubquyg0qqEEfpH6Xefmrg"],
  }),
});
type Path = z.output<typeof path>;

/** Contract, "Saved visuals". */
export const savedVisual: Operation<Path, VisualAnswer> = {
  name: "saved_visuals.get",
  method: "GET",
  path: "/api/v2/saved_visuals/{id}",
  access: "public",
  summary: "A saved visual",
  description: "What is published is decided by the visual's file; anything else is a 404.",
  request: path,
  answer: visualAnswer,
  sites: sitesOf,
  async run({ id }, context) {
    const visual = findVisual(id, context);
    const { title, description, type } = visual;
    return { id, title, description, type, ...(await compute(visual, context)) };
  },
};

export const savedVisualCsv: Operation<Path, never> = {
  name: "saved_visuals.csv",
  method: "GET",
  path: "/api/v2/saved_visuals/{id}/csv",
  access: "public",
  summary: "A saved visual as CSV",
  description:
    "RFC 4180. A series has a column each beside the timestamps, a list the keys of its groups and its selectors.",
  request: path,
  answer: z.string().meta({ description: "The table.", examples: ["timestamp,cpu\r\n"] }),
  mediaType: "text/csv",
  sites: sitesOf,
  run({ id }, context): Printed {
    const visual = findVisual(id, context);
    return {
      headers: {
        "Content-Type": "text/csv; charset=utf-8",
        "Content-Disposition": `attachment; filename="${fileName(visual.title)}.csv"`,
      },
      pieces: printTable(visual, compute(visual, context)),
    };
  },
};

/** One that is no longer configured is refused before anything runs, as what does not exist. */
function sitesOf({ id }: Path, visuals: Visuals | undefined): readonly string[] {
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

const routes = { series: endpoint(timeseries), rows: endpoint(list) } as const;

function routeOf({ query }: Visual): Endpoint {
  return query.group_by === undefined ? routes.series : routes.rows;
}

function bodyOf({ site, range, query }: Visual, now: Instant): unknown {
  const times =
    typeof range === "number"
      ? { from: printInstant((now - BigInt(range) * nanosPerMilli) as Instant), to: printInstant(now) }
      : range;
  return { ...query, ...times, site_id: site };
}

/** What the metrics routes would refuse of the visual's query at any time. */
export function checkVisual(visual: Visual): readonly Issue[] {
  try {
    routeOf(visual).prepare(bodyOf(visual, 0n as Instant));
    return [];
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    return "issues" in error.details ? error.details.issues : [{ path: "", message: error.message }];
  }
}

/** An answer that many may ask for, of something that its author chose once: it need not be large. */
const mostChars = 16 * 1_048_576;

/** In the specification's order of keys, which is that of the answer. */
const answer = z.object({
  resolution: z.string().nullable(),
  from: z.string(),
  to: z.string(),
  series: z
    .array(
      z.object({
        id: z.string(),
        name: z.string(),
        tags: z.record(z.string(), z.string()),
        field: z.string(),
        min: z.number().nullable(),
        max: z.number().nullable(),
        data: z.array(z.object({ timestamp: z.string(), value: z.number() })),
      }),
    )
    .optional(),
  rows: z
    .array(
      z.object({
        id: z.string(),
        group: z.record(z.string(), z.string()),
        data: z.record(z.string(), z.number()),
      }),
    )
    .optional(),
});

function compute(visual: Visual, { visuals, ...context }: Context): Promise<Answer> {
  if (visuals === undefined) throw new NotFound();
  return visuals.share(visual, async (signal) => {
    const prepared = routeOf(visual).prepare(bodyOf(visual, context.now()));
    const result = prepared.run({ ...context, signal });
    if (!("pieces" in result)) throw new TypeError("the metrics routes answer in pieces");
    let text = "";
    for await (const piece of result.pieces) {
      text += piece.text;
      if (text.length <= mostChars) continue;
      const message =
        "The visual has become too large: its file should ask for fewer series or a coarser resolution";
      throw new Refused("result_too_large", message, { limit: mostChars });
    }
    return answer.parse(JSON.parse(text));
  });
}

// ---- CSV ----------------------------------------------------------------------------------------------------

const rowsOfPiece = 500;

async function* printTable(visual: Visual, computed: Promise<Answer>): AsyncGenerator<Rows> {
  const { series, rows } = await computed;
  const lines = series === undefined ? rowLines(visual, rows ?? []) : seriesLines(series);
  let piece: (readonly Cell[])[] = [];
  for (const line of lines) {
    piece.push(line);
    if (piece.length < rowsOfPiece) continue;
    yield { count: piece.length, text: printCsv(piece) };
    piece = [];
  }
  if (piece.length > 0) yield { count: piece.length, text: printCsv(piece) };
}

/** A line for each time that some series has a point at; a series without one has an empty cell. */
function* seriesLines(series: readonly AnswerSeries[]): Generator<readonly Cell[]> {
  yield ["timestamp", ...series.map(({ id }) => id)];
  const columns = series.map(({ data }) => new Map(data.map(({ timestamp, value }) => [timestamp, value])));
  const times = new Set(series.flatMap(({ data }) => data.map(({ timestamp }) => timestamp)));
  // All have the same form, so that their order as text is that of time.
  for (const time of [...times].sort()) yield [time, ...columns.map((column) => column.get(time))];
}

/** As far as the columns need it; the routes have checked the rest. */
const listQuery = z.object({
  select: z.array(z.object({ id: z.string() })),
  group_by: z.array(z.union([z.string().transform(() => "Name"), z.record(z.string(), z.string())])),
});

/** The keys of the groups, then the ids of the selectors, as the file names them and whether or not a row has them. */
function* rowLines({ query }: Visual, rows: readonly AnswerRow[]): Generator<readonly Cell[]> {
  const { select, group_by } = listQuery.parse(query);
  const groups = group_by.flatMap((group) => (typeof group === "string" ? group : Object.values(group)));
  const ids = select.map(({ id }) => id);
  yield [...groups, ...ids];
  for (const { group, data } of rows) {
    yield [...groups.map((key) => own(group, key)), ...ids.map((id) => own(data, id))];
  }
}

/** A tag may be called `constructor`, and a row may lack it. */
function own<T extends Cell>(of: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(of, key) ? of[key] : undefined;
}

/** Of the title what every file system takes, in lower case. */
function fileName(title: string): string {
  const safe = title
    .normalize("NFKD")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "");
  return safe.slice(0, 80) || "visual";
}
