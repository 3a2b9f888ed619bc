// The thread of the spool: opens the file and answers one question after another.
import { parentPort, workerData } from "node:worker_threads";
import { now, toMillis } from "../core/time.ts";
import type { Spool } from "./spool.ts";
import type { SpoolOpened, SpoolReply, SpoolRequest, SpoolThreadData } from "./spool-client.ts";
import { isDamage } from "./spool-file.ts";
import { openOrReplaceSpool } from "./spool-recovery.ts";

const { path, limitBytes, damage }: SpoolThreadData = workerData;
const { spool, replacement } = openOrReplaceSpool(path, limitBytes, toMillis(now()), damage);
parentPort?.postMessage({ opened: true, replacement } satisfies SpoolOpened);

parentPort?.on("message", (request: SpoolRequest) => {
  const { number } = request;
  let reply: SpoolReply;
  try {
    reply = { number, answer: answerQuestion(spool, request) };
  } catch (error) {
    const isDamaged = isDamage(error);
    reply = { number, error: error instanceof Error ? error.message : String(error), isDamaged };
    if (isDamaged) endThread();
  }
  parentPort?.postMessage(reply);
});

/** Leaves the file to the next thread, which replaces it. */
function endThread(): void {
  spool.close();
  setImmediate(() => parentPort?.close());
}

function answerQuestion<Question extends keyof Spool>(
  methods: { readonly [Name in Question]: (...values: Parameters<Spool[Name]>) => ReturnType<Spool[Name]> },
  { question, values }: SpoolRequest<Question>,
): ReturnType<Spool[Question]> {
  return methods[question](...values);
}
