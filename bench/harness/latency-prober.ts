// An outside witness of stalls: asks one URL every 5 ms, one request at a time, and on SIGTERM prints the longest
// and the median answer time in milliseconds. A process of its own, since the clients have stalls themselves.
import { setPriority } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { createAgent, send } from "./http-client.ts";

const period = 5;
const url = process.argv[2] ?? "";
const answers: number[] = [];
let ended = false;
process.on("SIGTERM", () => {
  ended = true;
});
try {
  setPriority(-15);
} catch {
  // Only root may; the figures are then a little larger than the truth.
}

const agent = createAgent();
console.log(JSON.stringify({ url }));
while (!ended) {
  const { millis } = await send(agent, { url, method: "GET" });
  answers.push(millis);
  await sleep(Math.max(0, period - millis));
}
agent.destroy();
answers.sort((a, b) => a - b);
console.log(
  JSON.stringify({ longest: answers.at(-1), median: answers[answers.length >> 1], answers: answers.length }),
);
