// The schema of readout.yaml. (Types pinned by the lead; parsing is filled in by the configuration work.)
import type { Millis } from "./time.ts";

export interface Config {
  readonly listen: Address;
  readonly tokens: readonly TokenEntry[];
  /** Each backend's own settings, already parsed by its kind. */
  readonly backends: Readonly<Record<string, BackendEntry>>;
  readonly sites: Readonly<Record<string, SiteConfig>>;
  readonly limits: Limits;
}
export interface Address {
  readonly host: string;
  readonly port: number;
}
export interface TokenEntry {
  readonly user: string;
  /** Lower-case hex of the token's SHA-256. */
  readonly sha256: string;
  readonly sites: readonly string[] | "*";
  readonly expires?: bigint | undefined;
}
export interface BackendEntry {
  readonly kind: string;
  readonly settings: unknown;
}
export interface SiteConfig {
  readonly retention: Millis;
  readonly logs?: LogsPart | undefined;
}
export interface LogsPart {
  readonly backend: string;
  readonly sources: Readonly<
    Record<string, { readonly index: string; readonly profile: string; readonly where?: string | undefined }>
  >;
}
export interface Limits {
  /** Rows of one answer. */
  readonly rows: number;
  /** Lines of one millisecond before its answer is split into parts; settable upwards only (default 10,000). */
  readonly millisecond: number;
  /** Documents read from a source for one request. */
  readonly documents: number;
  readonly deadline: Millis;
  /** Requests under way at once. */
  readonly requests: number;
  /** Streamed answers under way at once. */
  readonly streams: number;
}
