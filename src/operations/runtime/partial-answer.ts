// Answers without what a failed backend holds, for clients that ask for what is there (`Accept: application/json;
// partial=allow`). Such an answer is what the site would answer if it had no such backend: a failed attempt is thrown away and
// the request is run again, so nothing in it is half read.
import type { MissingBackends } from "../../access/sites.ts";
import { BackendError, LimitReached } from "../../core/errors.ts";

/** What an answer lacks. */
export interface MissingParts {
  readonly backends: MissingBackends;
  /** What clients are told, one for each backend. */
  readonly labels: readonly string[];
}

export const nothingMissing: MissingParts = { backends: new Set(), labels: [] };

/**
 * Runs `answer`, and again without each backend that fails. `label` returns what clients are told of these, or undefined
 * where no answer may lack them; then, or if the rest is no answer either, the first failure is thrown.
 */
export async function answerWithoutFailed<Answer>(
  answer: (missing: MissingParts) => Promise<Answer>,
  label: (missing: MissingBackends) => readonly string[] | undefined,
): Promise<Answer> {
  let missing = nothingMissing;
  const failures: unknown[] = [];
  for (;;) {
    try {
      return await answer(missing);
    } catch (error) {
      failures.push(error);
      const backends = addFailedBackend(missing.backends, error);
      const labels = backends && label(backends);
      if (backends === undefined || labels === undefined) throw failures[0];
      missing = { backends, labels };
    }
  }
}

/** Undefined where it is no backend that has failed, or one that was not asked any more. */
function addFailedBackend(missing: MissingBackends, error: unknown): MissingBackends | undefined {
  if (!(error instanceof BackendError) || error instanceof LimitReached) return undefined;
  return missing.has(error.backend) ? undefined : new Set([...missing, error.backend]);
}
