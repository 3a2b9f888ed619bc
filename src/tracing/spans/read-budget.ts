// Budgets: how many documents one request may read, over all its calls to all its backends, and how much of them it may keep.

import { type HeldBytes, measureHeld } from "../../core/async/held-bytes.ts";
import { type ReadProgress, reportRead } from "../../core/async/read-progress.ts";
import { Refused } from "../../core/errors.ts";
import type { Attributes, Span } from "../../core/rows.ts";
import type { Budget } from "../../store/spans.ts";
import { findCurrentRecorder } from "../../telemetry/request-recorder.ts";

/** A share of a budget is spent, but not the budget itself: the caller may try another way. */
class BudgetShareSpent extends Error {
  override readonly name = "BudgetShareSpent";
}

/** For what has a bound of its own. */
export const unlimitedBudget: Budget = { limit: Number.POSITIVE_INFINITY, spend: () => undefined };

/** A share of a budget. What exceeds the share is not taken from the budget. @throws {BudgetShareSpent} by `spend` */
export function createBudgetShare(budget: Budget, limit: number): Budget {
  let spent = 0;
  return {
    limit,
    spend: (documents) => {
      if (spent + documents > limit) throw new BudgetShareSpent();
      spent += documents;
      budget.spend(documents);
    },
    reportRead: (documents) => budget.reportRead?.(documents),
    held: budget.held,
  };
}

/** The result of a read; undefined where it has spent its share of a budget. A read without a result would always look so. */
export async function suppressShareSpent<T extends NonNullable<unknown>>(
  read: Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof BudgetShareSpent) return undefined;
    throw error;
  }
}

/** Ids that count as one document of a budget, see `Budget`. */
export const idsPerBudgetUnit = 100;

/** The same budget, and a function that returns what is spent from it from now on. */
export function trackBudget(budget: Budget): { readonly budget: Budget; readonly spent: () => number } {
  let spent = 0;
  const spend = (documents: number): void => {
    spent += documents;
    budget.spend(documents);
  };
  const reportRead = (documents: number): void => budget.reportRead?.(documents);
  return { budget: { limit: budget.limit, spend, reportRead, held: budget.held }, spent: () => spent };
}

/** A budget whose `spend` throws `Refused` `result_too_large`, and records for the explanation of the request. */
export function createBudget(limit: number, progress?: ReadProgress, held?: HeldBytes): Budget {
  let spent = 0;
  const recorder = findCurrentRecorder();
  return {
    limit,
    spend: (documents) => {
      spent += documents;
      recorder?.recordDocuments({ documents });
      if (progress !== undefined) progress.wanted = spent;
      if (spent <= limit) return;
      const message = `At least ${spent.toLocaleString("en")} documents would have to be read, and the limit is ${limit.toLocaleString("en")}; narrow the range or the filters`;
      throw new Refused("result_too_large", message, { limit, wanted: spent });
    },
    reportRead: (documents) => reportRead(progress, documents, "documents"),
    held,
  };
}

// ---- What is kept ---------------------------------------------------------------------------------------------

/** What V8 takes for a span without its attributes, and for an attribute beside its text, or a little less. */
const bytesPerSpan = 320;
const bytesPerAttribute = 16;

/** Counts spans that are kept. Errors as `HeldBytes.hold`. */
export function holdSpans({ held }: Budget, spans: Iterable<Span>): void {
  if (held === undefined) return;
  let bytes = 0;
  for (const span of spans) bytes += measureSpan(span);
  held.hold(bytes);
}

/** Roughly what a span takes in memory. There may be hundred thousands, for which `measureHeld` takes seconds. */
export function measureSpan(span: Span): number {
  let bytes = bytesPerSpan + span.span_name.length + span.service_name.length;
  bytes += measureAttributes(span.span_attributes) + measureAttributes(span.resource_attributes);
  for (const { attributes } of span.events) bytes += bytesPerEvent + measureAttributes(attributes);
  for (const { attributes } of span.links) bytes += bytesPerEvent + measureAttributes(attributes);
  return bytes;
}

/** An event, or a link. */
const bytesPerEvent = 100;

function measureAttributes(attributes: Attributes): number {
  let bytes = 0;
  for (const key in attributes) {
    const value = attributes[key];
    if (typeof value === "string") bytes += bytesPerAttribute + value.length;
    else bytes += typeof value === "object" ? measureHeld(value) : bytesPerAttribute;
  }
  return bytes;
}

/** Runs a read that returns none of the spans that it keeps, and gives back what it holds. */
export async function releaseAfter<T>(budget: Budget, read: (budget: Budget) => Promise<T>): Promise<T> {
  const held = budget.held?.openPart();
  try {
    return await read({ ...budget, held });
  } finally {
    held?.release();
  }
}
