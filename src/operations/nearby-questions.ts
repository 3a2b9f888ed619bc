// Questions about moments that lie near each other are read together. Of those far apart all that lies between would be read too.

import { mapConcurrent } from "../core/async/concurrency.ts";
import { zip } from "../core/collections.ts";
import type { Millis } from "../core/time.ts";

interface Stretch {
  readonly from: Millis;
  readonly to: Millis;
}

interface ReadTogether<Question, Answer> {
  readonly stretchOf: (question: Question) => Stretch;
  /** From the beginning of the first question of a group: others that begin before are read with it. */
  readonly reach: Millis;
  /** The answers of a group in their order. */
  readonly read: (group: readonly Question[], signal: AbortSignal) => Promise<readonly Answer[]>;
}

/** Groups that are read at once. */
const concurrentGroups = 4;

/** The answers in the order of the questions. */
export async function answerByTime<Question, Answer>(
  questions: readonly Question[],
  { stretchOf, reach, read }: ReadTogether<Question, Answer>,
  signal: AbortSignal,
): Promise<readonly Answer[]> {
  const answers: Answer[] = [];
  const readGroup = async ({ members }: Group<Question>, own: AbortSignal): Promise<void> => {
    const found = await read(
      members.map(({ question }) => question),
      own,
    );
    for (const [{ at }, answer] of zip(members, found)) answers[at] = answer;
  };
  const placed = questions.map((question, at) => ({ question, at, ...stretchOf(question) }));
  await mapConcurrent(groupByTime(placed, reach), concurrentGroups, readGroup, signal);
  return answers;
}

interface PlacedQuestion<Question> extends Stretch {
  readonly question: Question;
  readonly at: number;
}
interface Group<Question> {
  readonly members: PlacedQuestion<Question>[];
  readonly from: Millis;
  to: Millis;
}

/** A question also joins others that have not ended when it begins: nothing lies between them. */
function groupByTime<Question>(
  placed: readonly PlacedQuestion<Question>[],
  reach: Millis,
): readonly Group<Question>[] {
  const groups: Group<Question>[] = [];
  for (const member of placed.toSorted((a, b) => a.from - b.from)) {
    const { from, to } = member;
    const last = groups.at(-1);
    if (last !== undefined && (from <= last.to || from < last.from + reach)) {
      last.members.push(member);
      last.to = Math.max(last.to, to);
    } else groups.push({ members: [member], from, to });
  }
  return groups;
}
