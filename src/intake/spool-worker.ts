// The thread of the spool: opens the file and answers one question after another.
import { parentPort, workerData } from "node:worker_threads";
import { now, toMillis } from "../core/time.ts";
import { openSpool, type Spool } from "./spool.ts";
import type { Question, Reply, SpoolerOptions } from "./spool-client.ts";

const { path, limitBytes }: SpoolerOptions = workerData;
const spool = openSpool(path, limitBytes);

parentPort?.on("message", (question: Question) => {
  let reply: Reply;
  try {
    reply = { number: question.number, ...answer(spool, question) };
  } catch (error) {
    reply = { number: question.number, error: error instanceof Error ? error.message : String(error) };
  }
  parentPort?.postMessage(reply);
});

function answer(spool: Spool, question: Question): Omit<Reply, "number"> {
  switch (question.ask) {
    case "append":
      return { kept: spool.append(question.entries) };
    case "next":
      return { spooled: spool.next(...question.of) };
    case "later": {
      const later = spool.later(...question.of);
      return { spooled: later === undefined ? [] : [later] };
    }
    case "settle":
      spool.settle(question.settlements, toMillis(now()));
      return {};
    case "level":
      return { level: spool.level() };
    case "close":
      spool.close();
      return {};
    default:
      return question satisfies never;
  }
}
