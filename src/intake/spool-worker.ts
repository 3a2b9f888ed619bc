// The thread of the spool: opens the file and answers one question after another.
import { parentPort, workerData } from "node:worker_threads";
import { now, toMillis } from "../core/time.ts";
import { openSpool, type Spool } from "./spool.ts";
import type { SpoolOptions, SpoolReply, SpoolRequest } from "./spool-client.ts";

const { path, limitBytes }: SpoolOptions = workerData;
const spool = openSpool(path, limitBytes);

parentPort?.on("message", (question: SpoolRequest) => {
  let reply: SpoolReply;
  try {
    reply = { number: question.number, ...executeRequest(spool, question) };
  } catch (error) {
    reply = { number: question.number, error: error instanceof Error ? error.message : String(error) };
  }
  parentPort?.postMessage(reply);
});

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
