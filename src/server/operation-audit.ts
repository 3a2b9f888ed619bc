// The audit lines of the operations within one request: those of a GraphQL query, and of an agent's tool.
import type { ReadProgress } from "../core/read-progress.ts";
import { describeFailure } from "../operations/runtime/error-response.ts";
import type { OperationExecutor } from "../operations/runtime/executor.ts";
import type { Context, PreparedOperation } from "../operations/runtime/operation.ts";
import type { ConfigGeneration, RequestLog } from "./rest.ts";

/** The executor, which writes a line for each operation that it completes. Without an audit log it is as it was. */
export function auditOperations(
  { audit, executor, isToken = () => false, visuals }: ConfigGeneration,
  request: string,
  { fields: { user, token } }: RequestLog,
): OperationExecutor {
  if (audit === undefined) return executor;
  return {
    ...executor,
    complete: async (prepare, principal, budget, admission, gone, onMissing) => {
      const started = performance.now();
      const seen: {
        prepared?: PreparedOperation;
        progress?: ReadProgress | undefined;
        missing?: readonly string[];
      } = {};
      const record = (status: number, rows?: number): Promise<void> => {
        const { prepared, progress, missing } = seen;
        const entry = {
          ...{
            event: "operation" as const,
            request,
            operation: prepared?.name ?? "none",
            user,
            token,
            status,
          },
          ...{
            sites: prepared?.sites(visuals),
            ...prepared?.readContent?.(),
            missing,
            rows,
            documents: progress?.read,
          },
          ms: Math.round(performance.now() - started),
        };
        return audit.record(entry, isToken);
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
        await record(describeFailure(error).status).catch(() => {});
        throw error;
      }
      await record(200, Array.isArray(answer) ? answer.length : 1);
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
