// Parses the texts that a server is sent. Values are many times as large as their text, so of the large texts of an owner one is
// parsed at a time.
import { largeJsonChars, parseJsonInTurns } from "./json-in-turns.ts";
import { parseJson } from "./parse-json.ts";

export interface JsonQueue {
  /** Large texts with turns of the event loop between. @throws {JsonSyntaxError} */
  readonly parse: (text: string, owner: string) => Promise<unknown>;
}

export function createJsonQueue(): JsonQueue {
  /** The last parsing of each owner. */
  const underWay = new Map<string, Promise<void>>();
  return {
    parse: (text, owner) =>
      text.length <= largeJsonChars ? parseSmall(text) : parseLarge(underWay, text, owner),
  };
}

/** Where it fails, our reader tells the position, which V8 does not name in short texts. */
async function parseSmall(text: string): Promise<unknown> {
  try {
    return parseJson(text);
  } catch {
    return await parseJsonInTurns(text);
  }
}

async function parseLarge(
  underWay: Map<string, Promise<void>>,
  text: string,
  owner: string,
): Promise<unknown> {
  const before = underWay.get(owner);
  const parsed = Promise.resolve(before).then(() => parseJsonInTurns(text));
  // Not the value, which the last promise of an owner would keep.
  const ended = parsed.then(
    () => undefined,
    () => undefined,
  );
  underWay.set(owner, ended);
  try {
    return await parsed;
  } finally {
    if (underWay.get(owner) === ended) underWay.delete(owner);
  }
}
