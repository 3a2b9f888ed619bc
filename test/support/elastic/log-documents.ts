// What a shipper of log lines is in tests, and how documents are printed. Bodies are spliced in as text, so that numbers keep
// their spelling.
import type { LoadedLine } from "../../log-query/script.ts";

export type ShippableLine = Omit<LoadedLine, "id">;
export interface LogShipper {
  /** The layout that must be detected. */
  readonly layout: string;
  readonly index: (prefix: string) => string;
  readonly definition: object;
  /** The document's text; `line.time` must be there. */
  readonly document: (line: ShippableLine) => string;
}

export const settings = { number_of_shards: 1, number_of_replicas: 0 };
export const keyword = (ignore_above?: number) => ({
  type: "keyword",
  ...(ignore_above && { ignore_above }),
});

/** Members of an object: values by `JSON.stringify`, absent ones left out, and the text `body` at the end. */
export function printObject(members: Readonly<Record<string, unknown>>, body = "{}"): string {
  const own = JSON.stringify(members).slice(1, -1);
  const rest = body.trim().slice(1, -1).trim();
  return `{${[own, rest].filter((part) => part !== "").join(",")}}`;
}

/** An object text whose member `key` is the text `inner`. */
export function insertMember(object: string, key: string, inner: string): string {
  return `${object.slice(0, -1)}${object === "{}" ? "" : ","}${JSON.stringify(key)}:${inner}}`;
}

/** By the name of a severity. Syslog has no trace. */
export const syslogCodes: Readonly<Record<string, number>> = {
  fatal: 0,
  alert: 1,
  critical: 2,
  error: 3,
  warn: 4,
  notice: 5,
  info: 6,
  debug: 7,
};
