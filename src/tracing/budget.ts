// What one request may read, counted over all its calls to all its backends.
import { Refused } from "../errors.ts";
import { recording } from "../explain.ts";
import type { Budget } from "../reader.ts";

export function createBudget(limit: number): Budget {
  let spent = 0;
  const recorder = recording();
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
