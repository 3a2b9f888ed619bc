// What many rows of one answer ask for is read together; and what would multiply the rows of an answer by themselves is
// refused: an app, an incident or an organization that a row leads back to is its name, and reads no source.
import DataLoader from "dataloader";
import { isNonEmpty, type NonEmpty } from "../../core/collections.ts";
import type { PreparedOperation } from "../../operations/runtime/operation.ts";
import { createInvalidRequest } from "../../operations/runtime/request-body.ts";
import type { Session } from "../../operations/runtime/session.ts";
import { createBatchSchedule } from "../lists/list-turns.ts";

type Loader = DataLoader<string, unknown>;
const loaders = new WeakMap<Session, Map<string, Loader>>();

/** Asks for at most so many at once: a trace query may have as many terms. */
const maxBatchSize = 200;

/** The answer to one of the questions that all rows ask under one key, in one request to the source. */
export async function loadTogether<Answer>(
  session: Session,
  link: string,
  key: string,
  question: string,
  prepare: (questions: NonEmpty<string>) => PreparedOperation<Promise<readonly Answer[]>>,
): Promise<Answer> {
  const known = loaders.get(session) ?? new Map<string, Loader>();
  loaders.set(session, known);
  const name = `${link} ${key}`;
  let loader = known.get(name);
  if (loader === undefined) {
    loader = new DataLoader<string, unknown>(
      async (questions) =>
        isNonEmpty(questions) ? await session.runLink(link, () => prepare(questions)) : [],
      { maxBatchSize, batchScheduleFn: createBatchSchedule(session) },
    );
    known.set(name, loader);
  }
  // One key is asked with one kind of answer.
  return (await loader.load(question)) as Answer;
}

/** A row that another has led back to. */
export interface BackReference {
  readonly isBackReference?: boolean | undefined;
}

/** @throws {GraphQLError} `invalid_request` where the parent is such a row */
export async function refuseBelowRows(
  { isBackReference }: BackReference,
  field: string,
  session: Session,
): Promise<void> {
  if (isBackReference !== true) return;
  await session.runLink(field, () => {
    const message = "is not answered below the rows of an app; ask for it at the app itself";
    throw createInvalidRequest([{ path: field, message }]);
  });
}
