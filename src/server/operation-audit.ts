// The audit lines of the operations within one request: those of a GraphQL query, and of an agent's tool.
import type { ReadProgress } from "../core/async/read-progress.ts";
import { describeFailure } from "../operations/runtime/error-response.ts";
import type { OperationExecutor } from "../operations/runtime/executor.ts";
import type { Context, PreparedOperation } from "../operations/runtime/operation.ts";
import type { ConfigGeneration, RequestLog } from "./rest.ts";

/** What is noted of an operation that has ended. */
interface OperationOutcome {
  readonly status: number;
  /** What a partial answer lacks. */
  readonly missing?: readonly string[] | undefined;
  readonly rows?: number | undefined;
  readonly documents?: number | undefined;
  /** By `performance.now()`. */
  readonly started: number;
}

/** Writes the line of an operation; `prepared` is undefined for one whose arguments are wrong. Undefined without an audit log. */
type RecordOperation = (
  prepared: Pick<PreparedOperation, "name" | "sites" | "readContent"> | undefined,
  outcome: OperationOutcome,
) => Promise<void>;

export function createOperationRecorder(
  { audit, isToken = () => false, visuals }: ConfigGeneration,
  request: string,
  { fields: { user, token } }: RequestLog,
): RecordOperation | undefined {
  if (audit === undefined) return undefined;
  return (prepared, { status, missing, rows, documents, started }) => {
    const operation = prepared?.name ?? "none";
    const entry = {
      event: "operation" as const,
      request,
      operation,
      user,
      token,
      status,
      sites: prepared?.sites(visuals),
      ...prepared?.readContent?.(),
      missing,
      rows,
      documents,
      ms: Math.round(performance.now() - started),
    };
    return audit.record(entry, isToken);
  };
}

/** The executor, which writes a line for each operation that it completes. Without an audit log it is as it was. */
export function auditOperations(
  generation: ConfigGeneration,
  request: string,
  log: RequestLog,
): OperationExecutor {
  const { executor } = generation;
  const record = createOperationRecorder(generation, request, log);
  if (record === undefined) return executor;
  return {
    ...executor,
    complete: async (prepare, principal, budget, admission, gone, onMissing) => {
      const started = performance.now();
      const seen: {
        prepared?: PreparedOperation;
        progress?: ReadProgress | undefined;
        missing?: readonly string[];
      } = {};
      const recordEnd = (status: number, rows?: number): Promise<void> => {
        const { prepared, progress, missing } = seen;
        return record(prepared, { status, missing, rows, documents: progress?.read, started });
      };
      let answer: unknown;
      try {
        answer = await executor.complete(
          () => {
            seen.prepared = prepare();
            return watchProgress(seen.prepared, (progress) => {
              seen.progress = progress;
            });
          },
          principal,
          budget,
          admission,
          gone,
          // Who takes no partial answer must get none.
          onMissing &&
            ((labels) => {
              seen.missing = labels;
              onMissing(labels);
            }),
        );
      } catch (error) {
        await recordEnd(describeFailure(error).status).catch(() => {});
        throw error;
      }
      await recordEnd(200, Array.isArray(answer) ? answer.length : 1);
      return answer;
    },
  };
}

function watchProgress(
  prepared: PreparedOperation,
  seen: (progress: ReadProgress | undefined) => void,
): PreparedOperation {
  const watch = <Result>(run: (context: Context) => Result) => {
    return (context: Context): Result => {
      seen(context.progress);
      return run(context);
    };
  };
  const { run, values } = prepared;
  return { ...prepared, run: watch(run), ...(values && { values: watch(values) }) };
}
