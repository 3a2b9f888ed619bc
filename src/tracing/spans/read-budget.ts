// What one request may read, counted over all its calls to all its backends.
import { Refused } from "../../core/errors.ts";
import type { Budget } from "../../store/spans.ts";
import { findCurrentRecorder } from "../../telemetry/request-recorder.ts";

/** A share of a budget is spent, and the budget itself is not: there may be another way. */
export class BudgetShareSpent extends Error {
  override readonly name = "ShareSpent";
}

/** A part of a budget; what does not fit into the part is not taken from the whole. */
export function createBudgetShare(budget: Budget, limit: number): Budget {
  let spent = 0;
  return {
    limit,
    spend: (documents) => {
      if (spent + documents > limit) throw new BudgetShareSpent();
      spent += documents;
      budget.spend(documents);
    },
  };
}

/** The budget, with a count of what is spent of it from here on. */
export function trackBudget(budget: Budget): { readonly budget: Budget; readonly spent: () => number } {
  let spent = 0;
  const spend = (documents: number): void => {
    spent += documents;
    budget.spend(documents);
  };
  return { budget: { limit: budget.limit, spend }, spent: () => spent };
}

export function createBudget(limit: number): Budget {
  let spent = 0;
  const recorder = findCurrentRecorder();
  return {
    limit,
    spend: (documents) => {
      spent += documents;
      recorder?.read({ documents });
      if (spent <= limit) return;
      const message = `More than ${limit} documents would have to be read; narrow the range or the filters`;
      throw new Refused("result_too_large", message, { limit });
    },
  };
}
