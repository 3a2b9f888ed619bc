// The toolkit of custom backends: the types of the store contract, and the functions of the program that their
// stores need. The program hands the functions over, so that the backend needs no copy of them: an error of another copy
// would not be recognised.
import { BackendError, createUnsupportedError, Refused } from "../src/core/errors.ts";
import { compareLines } from "../src/core/rows.ts";
import { parseSeverity } from "../src/core/severity-words.ts";
import { fromMillis, parseInstant, printInstant, toMillis } from "../src/core/time.ts";
import { compileMatcher } from "../src/log-query/matches.ts";
import type { BackendKind } from "../src/store/backend.ts";
import { createSpanAnalytics } from "../src/tracing/analytics.ts";
import { createGuard, guardDefaults } from "./http/guard.ts";

export type * from "../src/core/rows.ts";
export type { Instant, Millis, TimeRange } from "../src/core/time.ts";
export type * from "../src/log-query/ast.ts";
export type * from "../src/store/backend.ts";
export type * from "../src/store/error-reports.ts";
export type * from "../src/store/inspection.ts";
export type * from "../src/store/kubernetes.ts";
export type * from "../src/store/logs.ts";
export type * from "../src/store/metrics.ts";
export type * from "../src/store/span-analytics.ts";
export type * from "../src/store/spans.ts";

export const backendToolkit = {
  /** The errors of a store: worth a retry, and final. */
  BackendError,
  Refused,
  createUnsupportedError,
  parseInstant,
  printInstant,
  fromMillis,
  toMillis,
  /** The severity that a word means, in the spellings of all layouts. */
  parseSeverity,
  /** The meaning of a log query, as a test of lines. */
  compileMatcher,
  /** The order of lines in an answer. */
  compareLines,
  /** Answers everything about traces over `scan` and `find`. */
  createSpanAnalytics,
  /** Bulkhead, circuit breaker, deadline and retry around requests to a server. */
  createGuard,
  guardDefaults,
} as const;
type BackendToolkit = typeof backendToolkit;

/** The default export of a module that `backends.<name>.kind` names. */
export type BackendFactory<Config = unknown> = (toolkit: BackendToolkit) => BackendKind<Config>;
