// Preloaded into a server under test (`node --import ./bench/stall.ts …`): on SIGUSR2 it appends the longest stall
// of the event loop since the last signal, in milliseconds, to the file BENCH_STALLS. The maximum is quoted and
// not a percentile: a p99 of loop delays hides the one stall of a second that every caller waited through.
import { appendFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";

const resolution = 2;
const file = process.env.BENCH_STALLS;
const delays = monitorEventLoopDelay({ resolution });
delays.enable();

process.on("SIGUSR2", () => {
  // A sample is the time between two ticks of the timer, so it holds the timer's own period.
  const longest = Math.max(0, delays.max / 1e6 - resolution);
  if (file !== undefined) appendFileSync(file, `${longest.toFixed(1)}\n`);
  delays.reset();
});
