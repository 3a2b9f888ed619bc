// Budgets: how many documents one request may read, over all its calls to all its backends.
import { Refused } from "../../core/errors.ts";
import type { Budget } from "../../store/spans.ts";
import { findCurrentRecorder } from "../../telemetry/request-recorder.ts";

/** A share of a budget is spent, but not the budget itself: the caller may try another way. */
export class BudgetShareSpent extends Error {
  override readonly name = "BudgetShareSpent";
}

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
  };
}

/** The same budget, and a function that returns what is spent from it from now on. */
export function trackBudget(budget: Budget): { readonly budget: Budget; readonly spent: () => number } {
  let spent = 0;
  const spend = (documents: number): void => {
    spent += documents;
    budget.spend(documents);
  };
  return { budget: { limit: budget.limit, spend }, spent: () => spent };
}

/** A budget whose `spend` throws `Refused` `result_too_large`, and records for the explanation of the request. */
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
