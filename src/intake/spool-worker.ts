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

parentPort?.on("message", (question: SpoolRequest) => {
  let reply: SpoolReply;
  try {
    reply = { number: question.number, ...executeRequest(spool, question) };
  } catch (error) {
    const isDamaged = isDamage(error);
    reply = {
      number: question.number,
      error: error instanceof Error ? error.message : String(error),
      isDamaged,
    };
    if (isDamaged) endThread();
  }
  parentPort?.postMessage(reply);
});

/** Leaves the file to the next thread, which replaces it. */
function endThread(): void {
  spool.close();
  setImmediate(() => parentPort?.close());
}

function executeRequest(spool: Spool, question: SpoolRequest): Omit<SpoolReply, "number"> {
  switch (question.ask) {
    case "append":
      return { kept: spool.append(question.entries) };
    case "next":
      return { spooled: spool.readOldest(...question.of) };
    case "later": {
      const later = spool.pickLater(...question.of);
      return { spooled: later === undefined ? [] : [later] };
    }
    case "settle":
      spool.settle(question.settlements, toMillis(now()));
      return {};
    case "level":
      return { level: spool.readLevel() };
    case "close":
      spool.close();
      return {};
    default:
      return question satisfies never;
  }
}
