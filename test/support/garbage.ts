// Memory in use, told from memory that is free to take.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Returns what collects garbage. Memory outside the heap is given back some turns later, on a busy machine many. */
export function findCollector(): () => void {
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc");
}
