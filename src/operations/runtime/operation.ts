// An endpoint of the specification is one value. The REST route, the GraphQL field, the OpenAPI entry and the
// metric label all derive from it, and `sites` is required, so that no route can forget authorisation.
import type * as z from "zod";
import type { Sites } from "../../access/sites.ts";
import type { Limits } from "../../config/limits.ts";
import type { HeldBytes } from "../../core/async/held-bytes.ts";
import type { ReadProgress } from "../../core/async/read-progress.ts";
import type { Scope } from "../../core/scopes.ts";
import type { Instant } from "../../core/time.ts";
import type { Filter } from "../../log-query/ast.ts";
import type { LogSource, LogStore } from "../../store/logs.ts";
import type { PublishedVisuals } from "../../visuals/visual.ts";
import type { Deprecation } from "./deprecation.ts";
import { parseRequest } from "./request-body.ts";

export interface Operation<Input, Output> {
  /** `logs.lines`: the GraphQL field, metric label and trace name. */
  readonly name: string;
  readonly method: "GET" | "POST";
  /** Placeholders as the specification writes them: `{site_id}`. */
  readonly path: `/api/v2/${string}` | `/api/{app}/${string}` | "/oauth/token/info" | `/console/${string}`;
  /** Of a GET whose request is also in the query of its address. */
  readonly readsQuery?: boolean;
  readonly access: "token" | "public";
  /** What a token must have to ask for it; `none` for what reads no data, or only what is published. */
  readonly scope: Scope | "none";
  /** What it answers, in one line, for whoever reads the documentation. */
  readonly summary: string;
  /** What a caller has to know beyond the summary: order, bounds, paging. CommonMark. */
  readonly description?: string;
  /** Of what a later version leaves out. */
  readonly deprecation?: Deprecation;
  /**
   * Body or path parameters. Its input side is what REST takes, OpenAPI documents and GraphQL types; its output is
   * the operation's input. `null` means absent. Examples stand in its `meta`.
   */
  readonly request: z.ZodType<Input>;
  /** The whole answer as it is sent, for documentation: answers are not checked against it on their way out. */
  readonly answer: z.ZodType;
  /** Of an answer that is no JSON; `answer` is then its text. */
  readonly mediaType?: string;
  /** The sites that the request touches; each is authorised before `run`. Only a public one asks what is published. */
  readonly sites: (input: Input, visuals: PublishedVisuals | undefined) => readonly string[];
  /**
   * One JSON value, or the rows of a JSON array in batches, or an object that holds many rows as its text. A batch is
   * the JSON text of its rows, already joined by commas, with how many they are.
   * @throws {Unprocessable} {BackendError} also after the first batch
   */
  readonly run: (input: Input, context: Context) => Promise<Output> | AsyncIterable<RowBatch> | ChunkedBody;
  /**
   * The rows of `run` as values, fresh for each request, where they are at hand without their text: for protocols that
   * print them as a part of something larger. Errors as `run`.
   */
  readonly values?: (input: Input, context: Context) => AsyncIterable<readonly object[]>;
  /**
   * Whether an answer may lack what a failed backend holds. Absent where none may: a count, a single trace, what leads to a
   * 404. A page behind a cursor may not, since what it lacks would be lost behind it.
   */
  readonly mayBePartial?: (input: Input) => boolean;
  /** What the request means, for `?explain=true`, which then runs it; absent where that may not be asked. */
  readonly explain?: (input: Input, context: Context) => Promise<Readonly<Record<string, unknown>>>;
}
/** Another form of an operation's answer, for clients that name its media type in `Accept`. The request is the same. */
export interface Representation<Input> {
  /** The metric label: `logs.tail`. */
  readonly name: string;
  readonly mediaType: string;
  /** What a token must have beside the operation's scope. */
  readonly scope: Scope;
  readonly answer: z.ZodType;
  /** Errors as the operation's `run`. */
  readonly run: (input: Input, context: Context) => ChunkedBody | TailAnswer;
}
/** Lines to be followed as they come; the server's tails do that, since it outlives every deadline. */
export interface TailAnswer {
  readonly follow: {
    readonly store: LogStore;
    readonly sources: readonly [LogSource, ...LogSource[]];
    readonly filter: Filter;
    /** Absent: from now on. */
    readonly from: Instant | undefined;
    /** Absent: without end. */
    readonly to: Instant | undefined;
  };
}
/** Rows of one `RowBatch`: writing one never holds the event loop up, and many answers at once hold little text each. */
export const rowsPerChunk = 100;
/**
 * Text of one `RowBatch` where rows differ much in size, roughly. A text of 128 KiB has no room among V8's young objects, and
 * finding it another takes longer than printing it.
 */
export const charsPerChunk = 65_536;

/** A non-empty run of rows as JSON text joined by commas, without the brackets. */
export interface RowBatch {
  readonly count: number;
  readonly text: string;
  /** A refusal may still follow, so the status has to wait. Absent where only a failure can. */
  readonly refusable?: boolean;
  /** All is read, nothing can fail any more: roughly so many characters are still to be printed. */
  readonly unprinted?: number;
}
/** A JSON object as text, in pieces to be sent as they are; each counts the rows that end in it. */
export interface ChunkedBody {
  /** Of a text that is no JSON: what it is, and the like. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly pieces: AsyncIterable<RowBatch>;
}
export interface Context {
  readonly user: string;
  /** Those that the token may see; all of them for a public operation, which answers only what has been published. */
  readonly sites: Sites;
  /**
   * Whether the token may be used for that, beside what the operation itself needs; in a public operation for everything. Absent
   * where nobody asks, as in `readout explain`.
   */
  readonly hasScope?: (scope: Scope) => boolean;
  /** What is published without a token. */
  readonly visuals?: PublishedVisuals | undefined;
  readonly limits: Limits;
  readonly now: () => Instant;
  readonly signal: AbortSignal;
  /** Where the operation counts what it reads. */
  readonly progress?: ReadProgress | undefined;
  /** Where the operation counts what it holds. */
  readonly held?: HeldBytes | undefined;
  /** Whoever calls it has the deadline for each step, not for all of them. */
  readonly reportProgress?: (() => void) | undefined;
}

/** An operation whose input type is closed over, so that operations of different inputs can stand in one list. */
export interface Endpoint
  extends Pick<
    Operation<unknown, unknown>,
    | "name"
    | "method"
    | "path"
    | "access"
    | "scope"
    | "summary"
    | "description"
    | "deprecation"
    | "request"
    | "answer"
    | "mediaType"
    | "readsQuery"
  > {
  /** @throws {Unprocessable} all issues at once */
  readonly prepare: (raw: unknown) => PreparedOperation;
  /** Whether `?explain=true` may be asked. */
  readonly isExplainable: boolean;
  /** Whether some of its answers may lack what a failed backend holds. */
  readonly canBePartial: boolean;
  readonly representations: readonly EndpointRepresentation[];
}
/** A representation whose input type is closed over. */
export interface EndpointRepresentation
  extends Pick<Representation<unknown>, "name" | "mediaType" | "scope" | "answer"> {
  readonly prepare: (raw: unknown) => PreparedOperation<ChunkedBody | TailAnswer>;
}
/** What a request asks for, for the audit log. */
export interface RequestContent {
  /** The range as it was written. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** The query; of requests without one all that they say beside sites, range and page, as JSON. */
  readonly query?: string | undefined;
}
export interface PreparedOperation<Result = Promise<unknown> | AsyncIterable<RowBatch> | ChunkedBody> {
  /** The operation's, or of a link the family alone. */
  readonly name: string;
  /** All of these a token must have. */
  readonly scopes: readonly Scope[];
  readonly sites: (visuals: PublishedVisuals | undefined) => readonly string[];
  /** Absent for links of GraphQL, whose questions come from the answers of other operations. */
  readonly readContent?: () => RequestContent;
  readonly run: (context: Context) => Result;
  readonly values?: (context: Context) => AsyncIterable<readonly object[]>;
  readonly mayBePartial?: boolean;
  /** Of a link: its lists are points, which have a bound of their own, and no rows. */
  readonly countsPoints?: boolean;
  readonly explain?: (context: Context) => Promise<Readonly<Record<string, unknown>>>;
}
export function createEndpoint<Input, Output>(
  operation: Operation<Input, Output>,
  representations: readonly Representation<Input>[] = [],
): Endpoint {
  const { sites, run, values, mayBePartial, explain, ...described } = operation;
  const own: readonly Scope[] = described.scope === "none" ? [] : [described.scope];
  const prepareTo =
    <Result>(
      run: (input: Input, context: Context) => Result,
      scopes: readonly Scope[],
      isPartialAllowed: (input: Input) => boolean = () => false,
    ) =>
    (raw: unknown): PreparedOperation<Result> => {
      const input = parseRequest(described.request, raw);
      return {
        name: described.name,
        scopes,
        sites: (visuals) => sites(input, visuals),
        readContent: () => readContent(input),
        run: (context) => run(input, context),
        mayBePartial: isPartialAllowed(input),
        ...(values && { values: (context: Context) => values(input, context) }),
        ...(explain && { explain: (context: Context) => explain(input, context) }),
      };
    };
  return {
    ...described,
    prepare: prepareTo(run, own, mayBePartial),
    isExplainable: explain !== undefined,
    canBePartial: mayBePartial !== undefined,
    representations: representations.map(({ run, ...rest }) => {
      return { ...rest, prepare: prepareTo(run, [...own, rest.scope]) };
    }),
  };
}

/** What stands in other fields of the audit log, or tells only how much is wanted. */
const unasked: ReadonlySet<string> = new Set([
  "site_id",
  "site_ids",
  "app",
  "from",
  "to",
  "pagination",
  "query",
]);

function readContent(input: unknown): RequestContent {
  if (typeof input !== "object" || input === null) return {};
  const fields: Readonly<Record<string, unknown>> = { ...input };
  const { from, to, query } = fields;
  const text = typeof query === "string" ? query : printOthers(fields);
  return { from: readText(from), to: readText(to), query: text };
}

function printOthers(fields: Readonly<Record<string, unknown>>): string | undefined {
  const others = Object.entries(fields).filter(([name, value]) => !unasked.has(name) && value !== undefined);
  if (others.length === 0) return undefined;
  return JSON.stringify(Object.fromEntries(others), (_, value) =>
    typeof value === "bigint" ? String(value) : value,
  );
}

/** The text of a bound, where the request has it. */
function readText(bound: unknown): string | undefined {
  if (typeof bound !== "object" || bound === null || !("text" in bound)) return undefined;
  return typeof bound.text === "string" ? bound.text : undefined;
}
