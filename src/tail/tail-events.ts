// The events of a live tail for those who send them in another form than `sse.ts` prints: read back from the text, which
// is printed once for all tails that follow the same lines.
import { waitForTurn } from "../core/async/turns.ts";
import { tryParseJson } from "../core/json/parse-json.ts";
import type { StreamedBody } from "../http/body.ts";
import { rowsPerChunk } from "../operations/runtime/operation.ts";
import type { TailEvent, TailFailure } from "../operations/runtime/session.ts";

/**
 * The events of a body, at most `rowsPerChunk` lines in each. `notePosition` is told each id before the event that has it,
 * and the first one before this resolves. Each event has a turn of the event loop for whoever takes it: the same lines come to
 * all tails at the same moment. Reading rejects when the tail breaks off. `return` ends the tail at once, also
 * while an event is waited for.
 */
export async function readTailEvents(
  body: StreamedBody,
  notePosition: (id: string) => void,
): Promise<AsyncIterableIterator<TailEvent, void>> {
  let blocks: readonly string[] = [];
  // There at once: what opens the tail, or what ends it where it may not begin.
  await readBlocks();
  const { id: opening } = readBlock(blocks[0] ?? "");
  if (opening !== undefined) notePosition(opening);
  const events: AsyncIterableIterator<TailEvent, void> = {
    [Symbol.asyncIterator]: () => events,
    async next() {
      for (;;) {
        while (blocks.length > 0) {
          await waitForTurn();
          const event = takeEvent();
          if (event !== undefined) return { done: false, value: event };
        }
        if (!(await readBlocks())) return { done: true, value: undefined };
      }
    },
    async return() {
      await body.cancel();
      return { done: true, value: undefined };
    },
  };
  return events;

  /** Resolves to false behind the last. */
  async function readBlocks(): Promise<boolean> {
    const chunk = await body.next();
    if (chunk.done === true) return false;
    blocks = String(chunk.value).split("\n\n").slice(0, -1);
    return true;
  }

  function takeEvent(): TailEvent | undefined {
    const [first = ""] = blocks;
    // Lines stand together, since a text is that of one batch.
    const taken = first.startsWith("event: line\n") ? blocks.slice(0, rowsPerChunk) : [first];
    blocks = blocks.slice(taken.length);
    const read = taken.map(readBlock);
    const id = read.at(0)?.id;
    if (id !== undefined) notePosition(id);
    const [{ event, data } = { event: undefined, data: {} }] = read;
    switch (event) {
      case "line":
        return { lines: read.map((line) => line.data) };
      case "resumed":
        return { lines: [] };
      case "retry":
        return {
          failure: {
            message: String(data.error),
            extensions: { status: 500, retry_in_ms: data.retry_in_ms },
          },
        };
      case "end":
        return data.reason === "complete" ? undefined : { failure: describeEnd(data) };
      default:
        return undefined;
    }
  }
}

type Data = Readonly<Record<string, unknown>>;

function readBlock(text: string): {
  readonly event: string | undefined;
  readonly id: string | undefined;
  readonly data: Data;
} {
  const fields = new Map(
    text.split("\n").map((line): [string, string] => {
      const colon = line.indexOf(": ");
      return [line.slice(0, colon), line.slice(colon + 2)];
    }),
  );
  const data = tryParseJson(fields.get("data") ?? "{}");
  return { event: fields.get("event"), id: fields.get("id"), data: data as Data };
}

function describeEnd({ reason, error, message, details }: Data): TailFailure {
  const end = String(reason);
  if (end === "refused") {
    return { message: String(message), extensions: { status: 422, slug: error, details, end } };
  }
  return { message: endSentences[end] ?? "The tail has ended", extensions: { end } };
}

const endSentences: Readonly<Record<string, string>> = {
  slow: "The client takes lines more slowly than they come",
  draining: "The server is being shut down",
  reloaded: "The configuration has changed",
  expired: "The token has expired",
};
