// What an explanation of a request tells of rollups: whether they answer, of which pieces of the range figures were kept, which
// were read, and why.
import { printInstant, type TimeRange } from "../../core/time.ts";
import { type ChosenRange, findCurrentRecorder } from "../../telemetry/request-recorder.ts";

export interface PieceChoice {
  readonly range: TimeRange;
  readonly how: "stored" | "kept" | "shared" | "read";
  readonly why: string;
}

/** Records which way was taken, where the request is explained. Returns undefined, as where there is no answer from rollups. */
export function recordChoice(
  { backend, of }: { readonly backend: string; readonly of: string },
  how: "rollups" | "read",
  why: string,
  pieces?: readonly PieceChoice[],
): undefined {
  const recorder = findCurrentRecorder();
  if (recorder?.recordChoice === undefined) return;
  recorder.recordChoice({
    backend,
    of,
    how,
    why,
    ...(pieces !== undefined && { ranges: joinChoices(pieces) }),
  });
}

/** Neighbours of which the same is told, as one range. */
function joinChoices(pieces: readonly PieceChoice[]): readonly ChosenRange[] {
  const joined: PieceChoice[] = [];
  for (const piece of pieces) {
    const last = joined.at(-1);
    if (last?.how === piece.how && last.why === piece.why) {
      joined[joined.length - 1] = { ...last, range: { from: last.range.from, to: piece.range.to } };
    } else joined.push(piece);
  }
  return joined.map(({ range, how, why }) => {
    return { from: printInstant(range.from), to: printInstant(range.to), how, why };
  });
}
