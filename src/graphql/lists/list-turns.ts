// Lists are handed to the executor in turns of the event loop. It completes a list in one go: each row, with all that the
// query asks of it. Rows of a long list are promises, which it waits for; they are kept a few at a time.
import { setImmediate } from "node:timers";
import {
  type GraphQLField,
  type GraphQLObjectType,
  type GraphQLResolveInfo,
  type GraphQLSchema,
  getNamedType,
  getNullableType,
  isCompositeType,
  isIntrospectionType,
  isListType,
  isObjectType,
} from "graphql";
import { createPause } from "../../core/async/turns.ts";
import type { Context, Session } from "../../operations/runtime/session.ts";
import { countValues, readSelection } from "./answer-values.ts";

/** The rows of one request that the executor waits for. */
interface WaitingRows {
  /** Each lets it have the rows of one step. */
  readonly steps: (() => void)[];
  /** Batches that are due once it has all rows. */
  readonly batches: (() => void)[];
  /** Values of the lists that it has been handed at once since the last turn. */
  atOnce: number;
  isHanding: boolean;
}

const waitingBySession = new WeakMap<Session, WaitingRows>();

function findWaiting(session: Session): WaitingRows {
  const known = waitingBySession.get(session);
  if (known !== undefined) return known;
  const created: WaitingRows = { steps: [], batches: [], atOnce: 0, isHanding: false };
  waitingBySession.set(session, created);
  return created;
}

/** Some milliseconds of work for the executor, also for the slower one of queries that are not compiled. */
const valuesAtOnce = 5_000;
const valuesPerStep = 500;

/** The list as the executor is given it. A short one is handed over as it is. */
function handOver(session: Session, rows: readonly unknown[], values: number): readonly unknown[] {
  // Of rows with a few plain fields each, the promises would cost more than the rows.
  if (values === rows.length && rows.length > valuesAtOnce) return rows;
  const waiting = findWaiting(session);
  waiting.atOnce += values;
  if (waiting.atOnce <= valuesAtOnce) return rows;
  const rowsPerStep = Math.max(1, Math.floor((valuesPerStep * rows.length) / values));
  const handed: Promise<unknown>[] = [];
  for (let at = 0; at < rows.length; at += rowsPerStep) {
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.steps.push(resolve);
    for (const row of rows.slice(at, at + rowsPerStep)) handed.push(promise.then(() => row));
  }
  if (!waiting.isHanding) {
    waiting.isHanding = true;
    void handStepByStep(waiting);
  }
  return handed;
}

/** Microtasks in which a row, and the objects in it that are at hand, are completed. */
const ticksPerStep = 16;

async function handStepByStep(waiting: WaitingRows): Promise<void> {
  const pause = createPause();
  for (let next = 0; next < waiting.steps.length; next += 1) {
    const paused = pause();
    if (paused !== undefined) {
      await paused;
      waiting.atOnce = 0;
    }
    waiting.steps[next]?.();
    for (let tick = 0; tick < ticksPerStep; tick += 1) await undefined;
  }
  waiting.steps.length = 0;
  waiting.isHanding = false;
  waiting.atOnce = 0;
  for (const run of waiting.batches.splice(0)) setImmediate(run);
}

/**
 * When a loader asks for what its rows have asked it for: once the executor has all rows, so that rows which it is handed one
 * after another still ask together.
 */
export function createBatchSchedule(session: Session): (run: () => void) => void {
  return (run) => {
    const { isHanding, batches } = findWaiting(session);
    if (isHanding) batches.push(run);
    else setImmediate(run);
  };
}

/**
 * Has all lists of objects handed to the executor in turns where they are long. They are counted for the request unless the
 * schema delegates to one that has counted them.
 */
export function completeListsInTurns(schema: GraphQLSchema, isCounted = true): GraphQLSchema {
  const types = Object.values(schema.getTypeMap()).filter(
    (type): type is GraphQLObjectType => isObjectType(type) && !isIntrospectionType(type),
  );
  const listed = new Set<string>();
  for (const type of types)
    for (const field of Object.values(type.getFields()))
      if (isListOfObjects(field)) listed.add(getNamedType(field.type).name);
  // Lists that the rows of another one hold are counted with that one.
  for (const type of types)
    for (const field of Object.values(type.getFields()))
      if (isListOfObjects(field) && (field.resolve !== undefined || !listed.has(type.name)))
        completeInTurns(field, isCounted);
  return schema;
}

function isListOfObjects({ type }: GraphQLField<unknown, Context>): boolean {
  return isListType(getNullableType(type)) && isCompositeType(getNamedType(type));
}

function completeInTurns(field: GraphQLField<unknown, Context>, isCounted: boolean): void {
  const { resolve = (parent: unknown) => (parent as Readonly<Record<string, unknown>>)[field.name] } = field;
  field.resolve = (parent, args, context, info) => {
    const list = resolve(parent, args, context, info);
    return list instanceof Promise
      ? list.then((rows) => prepareList(rows, context.readout, info, isCounted))
      : prepareList(list, context.readout, info, isCounted);
  };
}

function prepareList(list: unknown, session: Session, info: GraphQLResolveInfo, isCounted: boolean): unknown {
  // The executor waits for rows that are promises as it is.
  if (!Array.isArray(list) || list.length === 0 || list.some((row) => row instanceof Promise)) return list;
  const handOverCounted = (values: number) => {
    if (isCounted) session.spendValues(values);
    return handOver(session, list, values);
  };
  const values = countValues(list, readSelection(info));
  return values instanceof Promise ? values.then(handOverCounted) : handOverCounted(values);
}
