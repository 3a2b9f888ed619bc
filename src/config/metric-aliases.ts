// Names by which clients ask for metrics that the source calls otherwise: `sites.<id>.metrics.names`.
import { z } from "zod";
import { toMapping } from "./plain-values.ts";
import { parseNumeral, text } from "./validation.ts";

/** By the name that clients ask for. */
export type MetricAliases = Readonly<Record<string, MetricAlias>>;

/** What a name stands for. */
export interface MetricAlias {
  /** As the source calls it. */
  readonly metric: string;
  /** Labels of the source by the keys of the tags that clients ask for. */
  readonly tags: Readonly<Record<string, string>>;
  /** Only series with these labels are meant. They are no tags under the name. */
  readonly match: Readonly<Record<string, string>>;
  /** Each value is multiplied by it. It is greater than 0. */
  readonly factor: number;
}

export const labelsSchema = z.record(z.string(), text);

const expectedFactor = "expected a number greater than 0";

const metricAliasSchema = z.strictObject({
  metric: text,
  tags: labelsSchema.default({}),
  match: labelsSchema.default({}),
  factor: z
    .preprocess(
      parseNumeral,
      z
        .number({ error: (issue) => (issue.input == null ? undefined : expectedFactor) })
        .gt(0, expectedFactor),
    )
    .default(1),
});

export const metricAliasesSchema = z.record(text, metricAliasSchema);

/**
 * Reports labels with two meanings under one name, and tags that could find nothing, with their paths in the part. What is of a
 * wrong type is left to the schema.
 */
export function checkMetricAliases(
  part: unknown,
  report: (path: readonly string[], message: string) => void,
): void {
  const forced = readLabels(toMapping(part).match);
  for (const [name, alias] of Object.entries(toMapping(toMapping(part).names))) {
    const path = ["names", name];
    const match = readLabels(toMapping(alias).match);
    for (const label of match.keys()) {
      if (forced.has(label)) report([...path, "match", label], "is in the match of the metrics already");
    }
    const keys = new Map<string, string>();
    for (const [key, label] of readLabels(toMapping(alias).tags)) {
      const rival = keys.get(label);
      keys.set(label, key);
      const own = [...path, "tags", key];
      if (rival !== undefined) report(own, `names the same label as ${JSON.stringify(rival)}`);
      if (forced.has(key)) report(own, "is in the match of the metrics, and therefore no tag");
      if (forced.has(label) || match.has(label)) report(own, "names a label of the match, which is no tag");
    }
  }
}

function readLabels(value: unknown): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(toMapping(value)).flatMap(([key, label]) =>
      typeof label === "string" ? [[key, label]] : [],
    ),
  );
}
