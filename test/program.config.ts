// `npm run test:program`: the program as a whole, and its questions while every source fails. Hermetic, and too long for each
// commit: `npm test` leaves these out.
import { defineConfig } from "vitest/config";
import config, { programTests } from "../vitest.config.ts";

/** `npm run test:faults` sets the number of its seeds. Only it makes attacks, which take minutes. */
const hasSeeds = process.env.SEEDS !== undefined;

export default defineConfig({
  test: {
    ...config.test,
    include: programTests,
    exclude: hasSeeds ? [] : ["test/faults/attacks.test.ts"],
  },
});
