// What a log line looks like when it is answered, for documentation. `lines.ts` prints it by hand.
import * as z from "zod";
import { severities } from "../../core/rows.ts";

export const logLine = z
  .object({
    id: z.string().meta({
      description: "Unique within its source.",
      examples: ["logs-app-2026.01.31/_9nXkZkB"],
    }),
    timestamp: z.string().meta({
      format: "date-time",
      description:
        "When it was recorded, with three fraction digits; digits four to six number the parts of a millisecond that holds too many lines for one page. Send the last one as `cursor.time` to get the next page.",
      examples: ["2026-01-31T12:00:00.123Z"],
    }),
    source_id: z.string().meta({ description: "The log source of the line.", examples: ["app"] }),
    severity: z.enum(severities).meta({
      id: "Severity",
      description: "How grave a log line is; `unknown` is what no rule recognises.",
    }),
    message: z
      .string()
      .meta({ description: 'The text; `""` where there is none.', examples: ["checkout failed"] }),
    hostname: z
      .string()
      .meta({ description: 'The producing host; `""` where it is not told.', examples: ["web-1"] }),
    group: z
      .string()
      .meta({ description: 'The log group; `""` where it is not told.', examples: ["checkout"] }),
    json: z.string().meta({
      description: "The structured body as JSON text, every number in the source's own spelling.",
      examples: ['{"http":{"response":{"status_code":500}}}'],
    }),
    attributes: z
      .record(z.string(), z.unknown())
      .meta({ description: "Legacy, always empty: see `json`.", examples: [{}] }),
  })
  .meta({ id: "LogLine", description: "A log line." });
