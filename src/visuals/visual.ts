// A saved visual: a file that publishes one view of a site's metrics to whoever knows its id. The file is the whole of
// it: nothing else is published, and without the file it is gone.
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { z } from "zod";
import { readPlainYaml } from "../config/yaml/yaml.ts";
import type { HeldBytes } from "../core/async/held-bytes.ts";
import { ConfigError, type Issue } from "../core/errors.ts";
import { formatChoice, formatSuggestion } from "../core/suggestion.ts";
import { type Millis, parseDuration, parseInstant } from "../core/time.ts";

export const visualTypes = ["line", "area", "bar", "number", "table"] as const;
export type VisualType = (typeof visualTypes)[number];

export interface Visual {
  readonly id: string;
  readonly title: string;
  readonly description: string;
  readonly type: VisualType;
  readonly site: string;
  /** So long until now, or two ISO times. */
  readonly range: Millis | { readonly from: string; readonly to: string };
  /** What is asked of the metrics routes, but for the site and the times: of the list where it has `group_by`. */
  readonly query: Readonly<Record<string, unknown>>;
}

/** What is published at the moment. */
export interface PublishedVisuals {
  readonly find: (id: string) => Visual | undefined;
  /**
   * The texts that `compute` answers, kept for a moment and shared by all who ask meanwhile. It gets a signal of its own, and holds
   * bytes of its own: one of them may leave without the others.
   */
  readonly shareAnswer: (
    visual: Visual,
    compute: (signal: AbortSignal, held?: HeldBytes) => Promise<readonly string[]>,
  ) => Promise<readonly string[]>;
}

/** What all configurations of a server publish. */
export interface VisualSource extends Pick<PublishedVisuals, "find"> {
  /** For one configuration: what another one answers may be other data, of backends that are closed by now. */
  readonly createAnswerCache: () => PublishedVisuals["shareAnswer"];
}

/** Of the metrics routes: `series` without groups, `rows` with them. */
export interface VisualData {
  readonly resolution: string | null;
  readonly from: string;
  readonly to: string;
  readonly series?: readonly VisualSeries[] | undefined;
  readonly rows?: readonly VisualRow[] | undefined;
}
export interface VisualSeries {
  readonly id: string;
  readonly data: readonly { readonly timestamp: string; readonly value: number }[];
}
export interface VisualRow {
  readonly group: Readonly<Record<string, string>>;
  readonly data: Readonly<Record<string, number>>;
}

/** 128 random bits, the least that nobody can guess. */
export function generateVisualId(): string {
  return randomBytes(16).toString("base64url");
}
const idPattern = /^[A-Za-z0-9_-]{22,100}$/;

/** A search that takes as long for a near miss as for any other text. */
export function createVisualFinder(visuals: readonly Visual[]): (id: string) => Visual | undefined {
  const hash = (id: string) => createHash("sha256").update(id).digest();
  const entries = visuals.map((visual) => ({ visual, hash: hash(visual.id) }));
  return (id) => {
    const sought = hash(id);
    let found: Visual | undefined;
    for (const entry of entries) if (timingSafeEqual(entry.hash, sought)) found = entry.visual;
    return found;
  };
}

const text = z.string().min(1, "must not be empty");
const instant = text.refine((value) => parseInstant(value) !== undefined, {
  error: "expected an ISO 8601 time with a zone, such as 2026-01-31T12:00:00Z, in quotes",
});
const schema = z
  .strictObject({
    id: text.regex(idPattern, "expected an id as `readout visual new` makes it"),
    title: text.max(200),
    description: z.string().max(2_000).default(""),
    type: z.enum(visualTypes),
    site: text,
    range: text
      .refine((value) => (parseDuration(value) ?? 0) > 0, {
        error: "expected a duration such as 90m, 24h or 7d",
      })
      .optional(),
    from: instant.optional(),
    to: instant.optional(),
    resolution: z.unknown().optional(),
    limit: z.unknown().optional(),
    select: z.unknown().optional(),
    group_by: z.unknown().optional(),
  })
  .check(({ value, issues }) => {
    const wrong = (path: string, message: string) =>
      issues.push({ code: "custom", path: [path], message, input: undefined });
    const { range, from, to, type, group_by } = value;
    const fixed = from !== undefined && to !== undefined;
    if (range === undefined ? !fixed : from !== undefined || to !== undefined) {
      wrong("range", "expected either `range`, or `from` and `to`");
    }
    const grouped = group_by !== undefined;
    if (type === "table" && !grouped) wrong("group_by", "a table has rows: say what to group them by");
    if ((type === "line" || type === "area") && grouped)
      wrong("group_by", `a ${type} has series and no groups`);
  });

const keys = Object.keys(schema.shape);

function describeIssue(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.code === "unrecognized_keys")
    return issue.keys.map((key) => `unknown key ${key}${formatSuggestion(key, keys)}`).join(", ");
  if (issue.code === "invalid_type" && issue.expected === "object") return "expected keys with values";
  if (issue.input === undefined || issue.input === null) return "is missing";
  if (issue.code === "invalid_value") return formatChoice(issue.input, issue.values.map(String));
  return issue.code === "invalid_type" ? `expected ${issue.expected}; put it in quotes` : undefined;
}

/**
 * The visual that a file holds. `check` tells what the metrics routes would say of its query.
 * @throws {ConfigError} all issues at once
 */
export function readVisual(text: string, file: string, check: (visual: Visual) => readonly Issue[]): Visual {
  const { data, error } = schema.safeParse(readPlainYaml(text, file), { error: describeIssue });
  if (error !== undefined) {
    throw new ConfigError(
      file,
      error.issues.map(({ path, message }) => ({ path: path.join("."), message })),
    );
  }
  const { id, title, description, type, site, range, from, to, ...query } = data;
  const visual: Visual = {
    id,
    title,
    description,
    type,
    site,
    range: readRange(range, from, to),
    query: Object.fromEntries(Object.entries(query).filter(([, part]) => part !== undefined)),
  };
  const issues = check(visual);
  if (issues.length > 0) throw new ConfigError(file, issues);
  return visual;
}

/** Throws for what the schema refuses: a guess would publish other times than the file names. */
function readRange(
  range: string | undefined,
  from: string | undefined,
  to: string | undefined,
): Visual["range"] {
  const length = range === undefined ? undefined : parseDuration(range);
  if (length !== undefined) return length;
  if (from === undefined || to === undefined) throw new Error("a visual without a range");
  return { from, to };
}
