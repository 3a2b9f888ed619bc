// How many runs the laws and the exhaustive tables make. `npm test` has a minute for all of them and takes a sample;
// `npm run test:laws`, which `.ci/run` calls as well, makes every run.

/** Whether every run is made. */
export const isExhaustive = process.env.RUNS === "all";

/** `all` runs where every one is made; otherwise one in `share` of them, and at least `least`. */
export function sampleRuns(all: number, { share = 10, least = 10 } = {}): number {
  return isExhaustive ? all : Math.min(all, Math.max(least, Math.ceil(all / share)));
}

/** All cases of a table where every run is made; otherwise each `share`th, from the one at `first` on. */
export function sampleCases<T>(all: readonly T[], { share = 5, first = 0 } = {}): readonly T[] {
  return isExhaustive ? all : all.filter((_, at) => at % share === first % share);
}
