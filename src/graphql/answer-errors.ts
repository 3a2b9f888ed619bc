// The errors of an answer, on their way out: each is the client's own mistake in words, one of our table, or nothing but
// "Internal server error". Those of thousands of rows are counted.
import { Readable } from "node:stream";
import {
  type ExecutionResult,
  GraphQLError,
  type GraphQLErrorExtensions,
  type GraphQLFormattedError,
} from "graphql";
import type { Plugin } from "graphql-yoga";
import { createPause } from "../core/async/turns.ts";
import { Refused } from "../core/errors.ts";
import { describeFailure, toGraphqlError } from "../operations/runtime/error-response.ts";
import type { Context, MissingAtPlace, TailFailure } from "../operations/runtime/session.ts";
import { respondWithEvents } from "./event-stream.ts";
import { type LongText, placeOfText, printInTurns, printJsonPieces, printLongText } from "./json-pieces.ts";
import { badRequest, isLimitError } from "./query-bounds.ts";
import { withoutSuggestion } from "./query-rules.ts";

const ownError = Symbol("of our table");

/** A failure of an operation, or of a tail, with what REST would have said of it. */
export function toFieldError({ message, extensions }: TailFailure): GraphQLError {
  return new GraphQLError(message, { extensions: { [ownError]: true, ...extensions } });
}

/** Adds an error beside each partial answer. */
export const reportMissing: Plugin<Partial<Context>> = {
  onExecute: () => ({
    onExecuteDone({ args, result, setResult }) {
      const { missing = [] } = args.contextValue.readout ?? {};
      if (missing.length === 0 || !isSingleResult(result)) return;
      const { data, errors = [] } = result;
      setResult({ ...result, errors: [...errors, ...missing.map((one) => createMissingError(one, data))] });
    },
  }),
};

/** Without a path where Mesh has renamed the field for its source, as it does with an alias. */
function createMissingError({ place, labels }: MissingAtPlace, data: ExecutionResult["data"]): GraphQLError {
  const message = "A data source failed, and the answer lacks what it holds";
  const isKnown = data?.[place[0] ?? ""] !== undefined;
  return new GraphQLError(message, {
    ...(isKnown && { path: place }),
    extensions: { [ownError]: true, missing: labels },
  });
}

/**
 * Lets out the errors of our table and what a client can mend in its query; the rest is logged and says nothing. `onLimited` is
 * told of each query that one of the bounds has refused.
 */
export function createErrorMaskPlugin(
  warn: (message: string, error?: unknown) => void,
  onLimited: () => void,
): Plugin {
  const mask = (error: GraphQLError, isSchemaOpen: boolean): GraphQLError => {
    const { message, path, originalError, extensions = {} } = error;
    if (Object.getOwnPropertySymbols(extensions).includes(ownError))
      return copyError(error, message, extensions);
    // Without a path nothing was run: the query, its variables, or the request around them is wrong.
    if (path === undefined && (originalError === undefined || originalError instanceof GraphQLError)) {
      // What has a place in the query is as wrong in whichever way it is executed; the executor has a status of its own.
      const { http = badRequest.http } = error.locations === undefined ? extensions : {};
      return copyError(error, isSchemaOpen ? message : withoutSuggestion(message), { http });
    }
    warn("a GraphQL field failed", originalError ?? error);
    return copyError(error, "Internal server error", { status: 500 });
  };
  /** By server context: what is left to print of an answer. */
  const unprinted = new WeakMap<object, LongText>();
  return {
    async onResultProcess({ result, setResult, setResultProcessor, serverContext }) {
      const { readout } = serverContext as Partial<Context>;
      const isSchemaOpen = readout?.rules.introspection !== false;
      const maskAll = ({ errors }: ExecutionResult) =>
        errors && maskInTurns(errors, (error) => mask(error, isSchemaOpen));
      // Yoga prints errors without the places that are not those of nodes.
      const toSent = (result: ExecutionResult, errors: readonly GraphQLError[] | undefined): object => {
        return { ...result, ...(errors && { errors: errors.map(formatError) }) };
      };
      if (isAsyncIterable(result)) {
        const options = {
          print: async (one: ExecutionResult) => printJsonPieces(toSent(one, await maskAll(one))),
          readPosition: () => readout?.readTailPosition(),
        };
        setResultProcessor(
          (_, fetchAPI) => respondWithEvents(result, options, fetchAPI),
          "text/event-stream",
        );
        return;
      }
      if (!isSingleResult(result)) return;
      // A query is refused before it is run, so nothing else of it has failed.
      if (result.data === undefined && result.errors?.some((error) => isLimitError(error))) onLimited();
      const errors = await maskAll(result);
      const text = printLongText(toSent(result, errors));
      if (text.rest !== undefined) unprinted.set(serverContext, text);
      const stringify = () => (text.rest === undefined ? text.head : placeOfText);
      setResult({ ...result, ...(errors && { errors }), stringify });
    },
    async onResponse({ response, serverContext, setResponse, fetchAPI }) {
      const text = unprinted.get(serverContext);
      if (text === undefined) return;
      const { status, statusText, headers } = response;
      headers.delete("Content-Length");
      const body = Readable.from(printInTurns(text, await response.text()), { objectMode: false });
      // The body of the fetch API of Yoga may be a stream of Node.
      setResponse(new fetchAPI.Response(body as unknown as BodyInit, { status, statusText, headers }));
    },
  };
}

/** Errors that an answer lists: each failing link of each row is one. Yoga copies them all once more in one step. */
const maxErrors = 1_000;

/** Those that are listed, masked, and one that counts all. */
async function maskInTurns(
  errors: readonly GraphQLError[],
  mask: (error: GraphQLError) => GraphQLError,
): Promise<readonly GraphQLError[]> {
  const pause = createPause();
  const listed = errors.length > maxErrors ? await selectListed(errors, pause) : errors;
  const masked: GraphQLError[] = [];
  for (const error of listed) {
    masked.push(mask(error));
    const paused = pause();
    if (paused !== undefined) await paused;
  }
  if (listed.length < errors.length) masked.push(createUnlistedError(errors.length));
  return masked;
}

/** The first of them by their places, in this order: which ones fail first is chance. */
async function selectListed(
  errors: readonly GraphQLError[],
  pause: ReturnType<typeof createPause>,
): Promise<readonly GraphQLError[]> {
  let first: GraphQLError[] = [];
  let last: GraphQLError | undefined;
  for (const error of errors) {
    if (last !== undefined && comparePlaces(error, last) >= 0) continue;
    first.push(error);
    if (first.length < 2 * maxErrors) continue;
    first = first.sort(comparePlaces).slice(0, maxErrors);
    last = first.at(-1);
    const paused = pause();
    if (paused !== undefined) await paused;
  }
  return first.sort(comparePlaces).slice(0, maxErrors);
}

/** Those nearer to the root first: they take more of the answer. */
function comparePlaces({ path: one = [] }: GraphQLError, { path: other = [] }: GraphQLError): number {
  if (one.length !== other.length) return one.length - other.length;
  const at = one.findIndex((key, index) => key !== other[index]);
  const [key, otherKey] = [one[at] ?? "", other[at] ?? ""];
  return key === otherKey ? 0 : key < otherKey ? -1 : 1;
}

function createUnlistedError(found: number): GraphQLError {
  const message = `The answer has ${found} errors, of which ${maxErrors} are listed`;
  const failure = new Refused("result_too_large", message, { limit: maxErrors, wanted: found });
  return toFieldError(toGraphqlError(describeFailure(failure)));
}

/** The error at its place, with nothing else of it. Compiled queries know locations and no nodes. */
function copyError(
  { locations, path }: GraphQLError,
  message: string,
  extensions: GraphQLErrorExtensions,
): GraphQLError {
  const error = new GraphQLError(message, { ...(path && { path }), extensions });
  return Object.defineProperty(error, "locations", { value: locations, enumerable: locations !== undefined });
}

/** What is sent of an error: all but what says how. */
function formatError(error: GraphQLError): GraphQLFormattedError {
  const { extensions: { http: _, ...extensions } = {}, ...fields } = error.toJSON();
  return Object.keys(extensions).length === 0 ? fields : { ...fields, extensions };
}

function isAsyncIterable(result: object): result is AsyncIterable<ExecutionResult> {
  return Symbol.asyncIterator in result;
}

function isSingleResult(result: object): result is ExecutionResult {
  return !Array.isArray(result) && !isAsyncIterable(result);
}
