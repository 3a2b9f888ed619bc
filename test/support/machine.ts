// How slow the machine is now, for promises in seconds: they are of an idle machine, and tests run where others work too.
import { execFileSync } from "node:child_process";

/** A start of Node that does nothing, on two idle processors of 2026. */
const idleStart = 40;

/** Returns by how much Node starts slower than there, never less than 1. Measure it right before what it judges. */
export function measureSlowdown(): number {
  const times = Array.from({ length: 5 }, () => {
    const begun = performance.now();
    execFileSync(process.execPath, ["--eval", "0"]);
    return performance.now() - begun;
  });
  const median = times.toSorted((a, b) => a - b)[2] as number;
  return Math.max(1, median / idleStart);
}
