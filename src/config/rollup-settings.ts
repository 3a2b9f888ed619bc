// `rollups`: where figures of spans are kept between requests, restarts and instances, and at which rate they are made.
import { z } from "zod";
import { parseNumeral, text } from "./validation.ts";

export interface RollupsConfig {
  /** A name under `backends`. */
  readonly backend: string;
  readonly index: string;
  /** The share of the time in which they are made, from 0.001 to 1. */
  readonly rate: number;
}

export const defaultRollups = { index: "readout-rollups", rate: 0.25 } as const;

/** A roller that works less than a minute and a half a day falls behind any source. */
const minRate = 0.001;
const expectedRate = `expected a number from ${minRate} to 1`;

export const rollupsSchema = z.strictObject({
  backend: text,
  index: text
    .regex(/^[a-z0-9][^A-Z\s/\\*?"<>|,#:]*$/, "expected the name of one index, in lower case")
    .default(defaultRollups.index),
  rate: z
    .preprocess(
      parseNumeral,
      z
        .number({ error: (issue) => (issue.input == null ? undefined : expectedRate) })
        .min(minRate, expectedRate)
        .max(1, expectedRate),
    )
    .default(defaultRollups.rate),
});
