// What one GraphQL request is answered through. The schema is stateless and is loaded by Mesh on its own; whatever it
// needs comes with the request, under `readout` in its context.

import type { Site } from "../../access/sites.ts";
import type { PreparedOperation } from "./operation.ts";

export interface Session {
  readonly user: string;
  readonly rules: QueryRules;
  /** Told of the document that a client has named by its hash. */
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
  /** What partial answers lack, so far. */
  readonly missing: readonly MissingAtPlace[];
  /** What a link has prepared, run as an operation is. Errors as `runOperation`. */
  readonly runLink: <Answer = unknown>(
    link: string,
    prepare: () => PreparedOperation<Promise<Answer>>,
  ) => Promise<Answer>;
  /** What the live tail of the operation of that name sends, until its client leaves. Errors as `runOperation`. */
  readonly follow: (operation: string, input: unknown) => Promise<AsyncIterable<TailEvent>>;
  /** The error by which a failure of its live tail is told. */
  readonly toTailError: (failure: TailFailure) => Error;
  /** Where the client of its live tail goes on: all before has been handed over. Undefined where there is none. */
  readonly readTailPosition: () => string | undefined;
  /** Gives back what it holds of its rows, which have been sent. */
  readonly release: () => void;
  /** A session for the next event of a live tail, with a bound of rows of its own. */
  readonly renew: () => Session;
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
  /** The document that a client may name by this hash instead of sending it. Absent where none are kept. */
  readonly findDocument: ((hash: string) => string | undefined) | undefined;
  /** Whether other documents are refused. */
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
 * By type and field. The schema checks parents and arguments, so a resolver says what it is given (which is why this
 * is a method's type: its parameters may be narrower).
 */
export type Resolvers = Readonly<Record<string, Readonly<Record<string, Resolver["resolve"]>>>>;
interface Resolver {
  resolve(parent: unknown, args: unknown, context: Context): unknown;
}
