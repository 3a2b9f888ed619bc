// What the resolvers of one GraphQL request get from the server: its user, its sites, and functions that run operations. The schema
// is stateless and is loaded by Mesh on its own, so this comes with the request, as `readout` in its context.

import type { Site } from "../../access/sites.ts";
import type { PreparedOperation } from "./operation.ts";

export interface Session {
  readonly user: string;
  readonly rules: QueryRules;
  /** Is called with the persisted document that a client has named by its hash. */
  readonly noteDocument: (document: string) => void;
  /** Aborted when nobody waits for the answer any more. */
  readonly gone: AbortSignal;
  /** The sites that the token may see, in the configuration's order. */
  readonly sites: readonly Site[];
  /**
   * The answer of the operation of that name, as REST would give it, its rows collected. All operations of a request
   * share one bound of rows. With `place`, a partial answer is taken, and an error at that place tells what it lacks.
   * @throws {GraphQLError} with what REST would have said, in its `extensions`
   */
  readonly runOperation: (operation: string, input: unknown, place?: AnswerPlace) => Promise<unknown>;
  /**
   * Counts values that the answer gets from the rows of a list, before they are completed.
   * @throws {GraphQLError} `result_too_large`
   */
  readonly spendValues: (values: number) => void;
  /** What partial answers lack, so far. */
  readonly missing: readonly MissingAtPlace[];
  /** What a link has prepared, run as an operation is. Errors as `runOperation`. */
  readonly runLink: <Answer = unknown>(
    link: string,
    prepare: () => PreparedOperation<Promise<Answer>>,
  ) => Promise<Answer>;
  /** What the live tail of the operation of that name sends, until its client leaves. Errors as `runOperation`. */
  readonly followTail: (operation: string, input: unknown) => Promise<AsyncIterable<TailEvent>>;
  /** Turns a failure of the request's live tail into a GraphQL error. */
  readonly toTailError: (failure: TailFailure) => Error;
  /** The event id after which the client of the request's live tail goes on. Undefined where there is none. */
  readonly readTailPosition: () => string | undefined;
  /** Gives back the held bytes of its rows, which have been sent. */
  readonly releaseRows: () => void;
  /** Creates a session for the next event of a live tail, with a bound of rows of its own. */
  readonly createNext: () => Session;
}

/** What a live tail sends: lines that have come, none where a source answers again, or why none come. */
export type TailEvent = { readonly lines: readonly object[] } | { readonly failure: TailFailure };

/** What clients of GraphQL are told of a tail whose source fails, or that ends before it is complete. */
export interface TailFailure {
  readonly message: string;
  readonly extensions: Readonly<Record<string, unknown>>;
}

/** Which GraphQL queries a server takes. */
export interface QueryRules {
  /** Returns the persisted document that a client names by its hash instead of sending it. Absent where none are kept. */
  readonly findDocument: ((hash: string) => string | undefined) | undefined;
  /** Whether queries are refused that are no persisted document. */
  readonly onlyDocuments: boolean;
  /** Whether clients may read the schema. */
  readonly introspection: boolean;
}

/** Where an answer stands in the answer of a GraphQL request. */
export type AnswerPlace = readonly (string | number)[];

export interface MissingAtPlace {
  readonly place: AnswerPlace;
  /** What clients are told of each backend. */
  readonly labels: readonly string[];
}

export interface Context {
  readonly readout: Session;
}

/**
 * By type and field. The schema checks parents and arguments, so a resolver says what it is given: the type of a method allows
 * narrower parameters.
 */
export type Resolvers = Readonly<Record<string, Readonly<Record<string, Resolver["resolve"]>>>>;
interface Resolver {
  resolve(parent: unknown, args: unknown, context: Context): unknown;
}
