// Prints how many KiB a coder of the named coding takes at the highest level while nobody reads what it has made. Pieces are
// small: what waits to be coded is held uncoded as well.
import type { CodingName } from "#src/config/edge-settings.ts";
import { encodeBody } from "#src/http/content-coding.ts";
import { toStreamedBody } from "#src/http/response.ts";

const name = process.argv[2] as CodingName;
const never = new AbortController().signal;
// Hardly compressible, and no piece like one that the coder's window still holds: coders give something back soon.
const text = Array.from({ length: 20_000 }, (_, n) =>
  Math.sin(n + 1)
    .toString(36)
    .slice(3),
).join("");
const pieceLength = 2_000;

async function* repeat() {
  for (let at = 0; ; at = (at + pieceLength) % (text.length - pieceLength))
    yield text.slice(at, at + pieceLength);
}

async function openStalled(count: number) {
  const bodies = Array.from({ length: count }, () =>
    encodeBody(toStreamedBody(repeat(), never), { name, level: 9, minBytes: 0 }, never),
  );
  for (const body of bodies) for (let n = 0; n < 8; n += 1) await body.next();
  return bodies;
}

const warm = await openStalled(20);
globalThis.gc?.();
const before = process.memoryUsage().rss;
const held = await openStalled(200);
globalThis.gc?.();
console.log(Math.round((process.memoryUsage().rss - before) / held.length / 1_024));
process.exit(warm.length > 0 ? 0 : 1);
