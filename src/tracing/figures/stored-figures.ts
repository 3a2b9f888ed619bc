// How figures are kept outside of this process: as compact values of JSON, which are input when they come back. A change of the
// figures' types changes these codecs, and the version of figures (`rollup-store/figures-version.ts`) with them.
import { z } from "zod";
import { mapInTurns, takeTurns } from "../../core/async/turns.ts";
import { tryParseJson } from "../../core/json/parse-json.ts";
import { compare, spanKinds } from "../../core/rows.ts";
import type { Instant } from "../../core/time.ts";
import type { ActionEdges, SiteEdges } from "../../store/span-analytics.ts";
import { addFigures, createDurationFigures, type DurationFigures } from "../rollups/duration-figures.ts";
import type { FiguresCodec } from "../rollups/stored-cover.ts";
import type { ActionEdgeKey, SiteEdgeKey } from "../service-edges.ts";
import { addEventAction, type EventActions, type EventTotals, formatEventKey } from "../slow-events.ts";
import { type ActionNames, formatActionKey } from "../spans/requests.ts";

const whole = z.int().nonnegative();
const totalPattern = /^\d{1,30}$/;
const total = z.string().regex(totalPattern).transform(BigInt);

const instant = z
  .string()
  .regex(/^-?\d{1,19}$/)
  .transform((text) => BigInt(text) as Instant);

// ---- Parts ----------------------------------------------------------------------------------------------------

/** A list of pairs: a key, and the text of its part, of which a request parses only its own. */
const partsSchema = z.array(z.tuple([z.string(), z.string()]));

/** Small enough to be worked on in one turn. */
interface PartCodec<Figures> extends FiguresCodec<Figures> {
  readonly decode: (value: unknown) => Figures | undefined;
  readonly merge: (figures: readonly Figures[]) => Figures;
}

function createPartsCodec<Figures>(codec: PartCodec<Figures>): FiguresCodec<Map<string, Figures>> {
  return {
    encode: (parts) => mapInTurns(parts, ([key, part]) => [key, JSON.stringify(codec.encode(part))] as const),
    decode: async (value) => {
      const { data } = partsSchema.safeParse(value);
      return data && decodeParts(codec, data);
    },
    merge: async (all) => {
      const lists = Map.groupBy(
        all.flatMap((parts) => [...parts]),
        ([key]) => key,
      );
      const merged = await mapInTurns(
        lists,
        ([key, own]) => [key, codec.merge(own.map(([, part]) => part))] as const,
      );
      return new Map(merged);
    },
  };
}

/** Undefined where one is none, or a key comes twice. */
async function decodeParts<Figures>(
  codec: PartCodec<Figures>,
  parts: readonly (readonly [string, string])[],
): Promise<Map<string, Figures> | undefined> {
  const decoded = await mapInTurns(parts, ([key, text]) => [key, codec.decode(tryParseJson(text))] as const);
  const all = new Map<string, Figures>();
  for (const [key, part] of decoded) {
    if (part === undefined || all.has(key)) return undefined;
    all.set(key, part);
  }
  return all;
}

/** One part, that of nothing where it is not there. */
function decodePart<Figures>(codec: PartCodec<Figures>, value: unknown, key: string): Figures | undefined {
  const { data } = partsSchema.safeParse(value);
  if (data === undefined) return undefined;
  const part = data.find(([own]) => own === key);
  return part === undefined ? codec.merge([]) : codec.decode(tryParseJson(part[1]));
}

// ---- Durations ------------------------------------------------------------------------------------------------

/**
 * Count, errors, total, and the lengths as a flat list of ranges and spans in turn; each range as the difference from the one
 * before.
 */
const durationsSchema = z
  .tuple([whole, whole, total, z.custom<readonly number[]>(isListOfPairs)])
  .transform(([count, errors, sum, flat]): DurationFigures => {
    const lengths = new Map<number, number>();
    let range = 0;
    for (const [at, value] of flat.entries()) {
      if (at % 2 === 0) range += value;
      else lengths.set(range, value);
    }
    return { count, errors, total: sum, lengths };
  })
  .refine(({ count, lengths }) => {
    let spans = 0;
    for (const own of lengths.values()) spans += own;
    return spans === count;
  });

/** By hand: a month has millions of numbers, and zod takes longer for each than reading its JSON. */
function isListOfPairs(value: unknown): boolean {
  return Array.isArray(value) && value.length % 2 === 0 && value.every(Number.isSafeInteger);
}

function encodeDurations({
  count,
  errors,
  total,
  lengths,
}: DurationFigures): z.input<typeof durationsSchema> {
  let last = 0;
  const flat: number[] = [];
  for (const [range, spans] of [...lengths].sort(([a], [b]) => compare(a, b))) {
    flat.push(range - last, spans);
    last = range;
  }
  return [count, errors, String(total), flat];
}

// ---- Requests -------------------------------------------------------------------------------------------------

/** The requests of one action and revision. */
export interface RequestFigures {
  readonly names: ActionNames;
  readonly durations: DurationFigures;
  hasNpo: boolean;
  /** The first and the last end. */
  first: Instant;
  last: Instant;
}

/** By `formatActionKey`. */
export type RequestsByAction = Map<string, RequestFigures>;
/** By `formatPartKey`: a revision has its actions in several parts, each small enough for one turn. */
export type RequestsByPart = Map<string, RequestsByAction>;

const requestsSchema = z
  .tuple([z.string(), z.string(), durationsSchema, z.boolean(), instant, instant])
  .transform(([namespace, action, durations, hasNpo, first, last]): RequestFigures => {
    return { names: { namespace, action }, durations, hasNpo, first, last };
  });

const requestsOfPartCodec: PartCodec<RequestsByAction> = {
  encode: (actions) =>
    [...actions.values()].map(({ names, durations, hasNpo, first, last }) => [
      names.namespace,
      names.action,
      encodeDurations(durations),
      hasNpo,
      String(first),
      String(last),
    ]),
  decode: (value) => {
    const { data } = z.array(requestsSchema).safeParse(value);
    return data && new Map(data.map((requests) => [formatActionKey(requests.names), requests]));
  },
  merge: (all) => {
    const sum: RequestsByAction = new Map();
    for (const actions of all) for (const requests of actions.values()) addRequests(sum, requests);
    return sum;
  },
};
export const requestsCodec = createPartsCodec(requestsOfPartCodec);

const partsOfRevision = 32;

/** One of so many parts, always the same for a text. */
export function choosePart(text: string, parts: number): number {
  let sum = 0;
  for (let at = 0; at < text.length; at += 1) sum = (31 * sum + text.charCodeAt(at)) >>> 0;
  return sum % parts;
}

/** An action always lies in the same part of its revision. */
export function findRequestsPart(
  parts: RequestsByPart,
  revision: string | undefined,
  actionKey: string,
): RequestsByAction {
  const key = formatPartKey(revision, choosePart(actionKey, partsOfRevision));
  const known = parts.get(key);
  if (known !== undefined) return known;
  const part: RequestsByAction = new Map();
  parts.set(key, part);
  return part;
}

const partKeySchema = z.tuple([z.int(), z.string().nullable()]);

function formatPartKey(revision: string | undefined, part: number): string {
  return JSON.stringify([part, revision ?? null]);
}

/** The parts of a revision. */
export function listPartKeys(revision: string): readonly string[] {
  return Array.from({ length: partsOfRevision }, (_, part) => formatPartKey(revision, part));
}

/** The revision of a part, by its key; undefined where its requests name none. */
export function readRevision(key: string): string | undefined {
  return partKeySchema.safeParse(tryParseJson(key)).data?.[1] ?? undefined;
}

/** The requests of revisions, none of one that is not there; undefined for what is no value of `requestsCodec`. */
export async function decodeRequests(
  value: unknown,
  revisions: readonly string[],
): Promise<RequestsByPart | undefined> {
  const { data } = partsSchema.safeParse(value);
  if (data === undefined) return undefined;
  const keys = new Set(revisions.flatMap(listPartKeys));
  return decodeParts(
    requestsOfPartCodec,
    data.filter(([key]) => keys.has(key)),
  );
}

/** Adds requests to those of their action. */
function addRequests(sum: RequestsByAction, added: RequestFigures): void {
  const key = formatActionKey(added.names);
  const known = sum.get(key);
  if (known === undefined) {
    const durations = createDurationFigures();
    addFigures(durations, added.durations);
    sum.set(key, { ...added, durations });
    return;
  }
  addFigures(known.durations, added.durations);
  known.hasNpo ||= added.hasNpo;
  if (added.first < known.first) known.first = added.first;
  if (added.last > known.last) known.last = added.last;
}

// ---- Edges ----------------------------------------------------------------------------------------------------

/** The figures of the callers, by the JSON text of the edge's key. */
export type EdgeFigures<Key> = Map<string, { readonly key: Key; readonly durations: DurationFigures }>;
export type FiguresBySide<Side extends string, Key> = Readonly<Record<Side, EdgeFigures<Key>>>;

/** Of each side a list of pairs: the key and its durations. */
function createEdgesCodec<Side extends string, Key>(
  sides: readonly Side[],
  keySchema: z.ZodType<Key>,
): PartCodec<FiguresBySide<Side, Key>> {
  const sideSchema = z.array(z.tuple([keySchema, durationsSchema]));
  const schema = z.array(sideSchema).length(sides.length);
  const bySide = (read: (side: Side, at: number) => EdgeFigures<Key>) =>
    Object.fromEntries(sides.map((side, at) => [side, read(side, at)])) as FiguresBySide<Side, Key>;
  return {
    encode: (figures) =>
      sides.map((side) =>
        [...figures[side].values()].map(({ key, durations }) => [key, encodeDurations(durations)]),
      ),
    decode: (value) => {
      const { data } = schema.safeParse(value);
      return (
        data &&
        bySide(
          (_, at) => new Map(data[at]?.map(([key, durations]) => [JSON.stringify(key), { key, durations }])),
        )
      );
    },
    merge: (all) =>
      bySide((side) => {
        const sum: EdgeFigures<Key> = new Map();
        for (const figures of all) addEdges(sum, figures[side]);
        return sum;
      }),
  };
}

export const siteEdgesCodec = createEdgesCodec<keyof SiteEdges, SiteEdgeKey>(
  ["upstream", "downstream", "internal"],
  z.strictObject({ service: z.string() }),
);

export type ActionEdgeFigures = FiguresBySide<keyof ActionEdges, ActionEdgeKey>;
/** By `formatEdgesAction`. */
export type EdgesByAction = Map<string, ActionEdgeFigures>;

/** Keys in the order of `deriveUpstreamKey`, since their JSON text tells edges apart. */
const edgesOfActionCodec = createEdgesCodec<keyof ActionEdges, ActionEdgeKey>(
  ["upstream", "downstream"],
  z.strictObject({
    service: z.string(),
    namespace: z.string().optional(),
    action: z.string().optional(),
    span_kind: z.enum(spanKinds),
    peer_span_kind: z.enum(spanKinds).optional(),
    edge_type: z.enum(["SYNC", "ASYNC"]),
  }),
);
export const actionEdgesCodec = createPartsCodec(edgesOfActionCodec);

/** The edges of one action, none where it is not there; undefined for what is no value of `actionEdgesCodec`. */
export function decodeActionEdges(value: unknown, action: string): ActionEdgeFigures | undefined {
  return decodePart(edgesOfActionCodec, value, action);
}

/** The edges of an action, new ones where it has none. */
export function findActionEdges(byAction: EdgesByAction, action: string): ActionEdgeFigures {
  const known = byAction.get(action);
  if (known !== undefined) return known;
  const edges = edgesOfActionCodec.merge([]);
  byAction.set(action, edges);
  return edges;
}

/** Adds the edges of a piece to a sum. */
export function addEdges<Key>(sum: EdgeFigures<Key>, piece: EdgeFigures<Key>): void {
  for (const [id, { key, durations }] of piece) addFigures(findDurations(sum, id, key), durations);
}

/** The figures of an edge, new ones where it has none. */
export function findDurations<Key>(figures: EdgeFigures<Key>, id: string, key: Key): DurationFigures {
  const known = figures.get(id);
  if (known !== undefined) return known.durations;
  const durations = createDurationFigures();
  figures.set(id, { key, durations });
  return durations;
}

// ---- Slow events ----------------------------------------------------------------------------------------------

export interface EventFigures {
  /** Of all spans below requests, nanoseconds. */
  total: bigint;
  readonly events: Map<string, { -readonly [Name in keyof EventTotals]: EventTotals[Name] }>;
}

/** By hand: a day may have a hundred thousand events, and zod takes ten times as long as reading their JSON. */
function readEvent(value: unknown): EventTotals | undefined {
  if (!Array.isArray(value) || value.length !== 6) return undefined;
  const [service, kind, name, statement, count, sum]: readonly unknown[] = value;
  const known = spanKinds.find((one) => one === kind);
  if (known === undefined || typeof service !== "string" || typeof name !== "string") return undefined;
  if (statement !== null && typeof statement !== "string") return undefined;
  if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 0) return undefined;
  if (typeof sum !== "string" || !totalPattern.test(sum)) return undefined;
  const key = { service, kind: known, name, statement: statement ?? undefined };
  return { key, count, total: BigInt(sum), attributes: noAttributes };
}
const noAttributes: EventTotals["attributes"] = {};
const eventsSchema = z.tuple([total, z.array(z.unknown())]);

export const eventsCodec: FiguresCodec<EventFigures> = {
  encode: ({ total, events }) => [
    String(total),
    [...events.values()].map(({ key: { service, kind, name, statement = null }, count, total }) => [
      service,
      kind,
      name,
      statement,
      count,
      String(total),
    ]),
  ],
  decode: async (value) => {
    const { data } = eventsSchema.safeParse(value);
    if (data === undefined) return undefined;
    const [total, written] = data;
    const events: EventFigures["events"] = new Map();
    for await (const chunk of takeTurns(written)) {
      for (const one of chunk) {
        const event = readEvent(one);
        if (event === undefined) return undefined;
        events.set(formatEventKey(event.key), event);
      }
    }
    return { total, events };
  },
  merge: async (all) => {
    const sum: EventFigures = { total: all.reduce((sum, { total }) => sum + total, 0n), events: new Map() };
    for await (const chunk of takeTurns(listEvents(all)))
      for (const [id, event] of chunk) addEvent(sum.events, id, event);
    return sum;
  },
};

function* listEvents(all: readonly EventFigures[]): Generator<readonly [string, EventTotals]> {
  for (const { events } of all) yield* events;
}

/** Adds to the totals of an event. */
export function addEvent(sum: EventFigures["events"], id: string, { key, count, total }: EventTotals): void {
  const known = sum.get(id);
  if (known === undefined) sum.set(id, { key, count, total, attributes: noAttributes });
  else {
    known.count += count;
    known.total += total;
  }
}

// ---- Actions of slow events -----------------------------------------------------------------------------------

/** By the digest of the slow event. */
export type ActionsByEvent = Map<string, EventActions>;

const eventActionSchema = z
  .tuple([
    z.string(),
    z.string(),
    whole,
    z.string(),
    z.string(),
    z.string(),
    z.enum(spanKinds),
    instant,
    instant,
  ])
  .transform(([namespace, action, count, trace_id, span_id, site_id, span_kind, start, end]) => ({
    names: { namespace, action },
    of: { count, longest: { trace_id, span_id, site_id, span_kind, start, end } },
  }));

/** Of each action: its names, the number of spans, and the longest span. */
const actionsOfEventCodec: PartCodec<EventActions> = {
  encode: (actions) =>
    [...actions.values()].map(({ names, of: { count, longest } }) => [
      names.namespace,
      names.action,
      count,
      longest.trace_id,
      longest.span_id,
      longest.site_id,
      longest.span_kind,
      String(longest.start),
      String(longest.end),
    ]),
  decode: (value) => {
    const { data } = z.array(eventActionSchema).safeParse(value);
    return data && new Map(data.map((action) => [formatActionKey(action.names), action]));
  },
  merge: mergeEventActions,
};
export const eventActionsCodec = createPartsCodec(actionsOfEventCodec);

export function mergeEventActions(all: readonly EventActions[]): EventActions {
  const sum: EventActions = new Map();
  for (const actions of all) for (const { names, of } of actions.values()) addEventAction(sum, names, of);
  return sum;
}

/** The actions of one slow event, none where it is not there; undefined for what is no value of `eventActionsCodec`. */
export function decodeEventActions(value: unknown, digest: string): EventActions | undefined {
  return decodePart(actionsOfEventCodec, value, digest);
}

/** The actions of a slow event, new ones where it has none. */
export function findEventActions(byEvent: ActionsByEvent, digest: string): EventActions {
  const known = byEvent.get(digest);
  if (known !== undefined) return known;
  const actions: EventActions = new Map();
  byEvent.set(digest, actions);
  return actions;
}
