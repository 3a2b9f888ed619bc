// What answers of both metrics operations have as text: the range of the request, and the ids of series and rows.
import { printNanos } from "../../core/time.ts";
import type { RequestTime } from "../runtime/request-body.ts";

export function printRange({ from, to }: { readonly from: RequestTime; readonly to: RequestTime }): string {
  // At least three fraction digits, more only where the request has them.
  const print = ({ instant }: RequestTime) => printNanos(instant).replace(/0{1,6}Z$/, "Z");
  return `"from":"${print(from)}","to":"${print(to)}"`;
}

/** The key of a tag, and what stands for it in an id, before the value. */
type PrintedTagKey = readonly [key: string, text: string];

/** Each key with its text, in the order of their texts. */
export function sortTagKeys(keys: readonly string[]): readonly PrintedTagKey[] {
  const printed = keys.map((key): PrintedTagKey => [key, `${encodeIdPart(key)}=`]);
  return printed.sort(([, a], [, b]) => (a < b ? -1 : 1));
}

export function printTags(keys: readonly PrintedTagKey[], tags: Readonly<Record<string, string>>): string {
  let text = "";
  for (const [key, before] of keys)
    text += `${text === "" ? "" : ","}${before}${encodeIdPart(tags[key] ?? "")}`;
  return text;
}

/** A name, key or value without the characters that separate the parts of an id. */
export function encodeIdPart(text: string): string {
  return !/[%|,=]/.test(text)
    ? text
    : text.replaceAll(/[%|,=]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}
