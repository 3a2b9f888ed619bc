// Random inputs from numbered seeds, so that a failure can be repeated from its seed. Used instead of fast-check, whose
// generators would cost more than the code under test.
import { createRandom } from "#resolvers/memory/demo/seeded-random.ts";
import { startProcessorTime } from "../support/cpu-time.ts";

/** Whether the suites run at their full length (`npm run test:fuzz`); `npm run test:program` takes a fiftieth of it. */
export const long = process.env.FUZZ === "long";
const first = Number(process.env.SEED ?? 1) * 1_000_000;

export interface Draw {
  /** A whole number from 0 up to `end`, exclusive. */
  below(end: number): number;
  chance(probability: number): boolean;
  pick<T>(from: readonly [T, ...T[]]): T;
  pick<T>(from: readonly T[]): T | undefined;
  /** From none to `most` of what `one` draws. */
  some<T>(most: number, one: (at: number) => T): T[];
}

export function createDraw(seed: number): Draw {
  const random = createRandom(`fuzz ${seed}`);
  const below = (end: number): number => Math.floor(random() * end);
  return {
    below,
    chance: (probability) => random() < probability,
    pick: <T>(from: readonly T[]) => from[below(from.length)] as T,
    some: (most, one) => Array.from({ length: below(most + 1) }, (_, at) => one(at)),
  };
}

/** Runs `check` on this many inputs. An error is reported with the seed and the input. */
export async function fuzz<Input>(
  inputs: number,
  draw: (draw: Draw) => Input,
  check: (input: Input) => void | Promise<void>,
): Promise<void> {
  const count = long ? inputs : Math.ceil(inputs / 50);
  const before = describePrototypes();
  for (let seed = first; seed < first + count; seed++) {
    const input = draw(createDraw(seed));
    try {
      const used = startProcessorTime();
      const checked = check(input);
      if (checked !== undefined) await checked;
      const milliseconds = used();
      if (milliseconds > mostMilliseconds) throw new Error(`${milliseconds} ms of processor time`);
      for (const key in {}) throw new Error(`every object has a property ${key}`);
    } catch (error) {
      throw new Error(`seed ${seed}: ${show(input)}`, { cause: error });
    }
  }
  const changed = describePrototypes().filter(({ value }, at) => value !== before[at]?.value);
  if (changed.length > 0) throw new Error(`changed: ${changed.map(({ key }) => key).join(", ")}`);
}

const mostMilliseconds = 1_000;

const builtIns = [Object, Array, Function, String, Number, Boolean, RegExp, Promise, Map, Set, Date, Error];

/** The properties of the shared prototypes, to detect prototype pollution. */
function describePrototypes(): readonly { readonly key: string; readonly value: unknown }[] {
  return builtIns.flatMap(({ name, prototype }) =>
    Object.entries(Object.getOwnPropertyDescriptors(prototype)).map(([key, { value }]) => ({
      key: `${name}.prototype.${key}`,
      value,
    })),
  );
}

function show(input: unknown): string {
  const bytes = (value: unknown) =>
    value instanceof Uint8Array ? Buffer.from(value).toString("latin1") : value;
  const text = JSON.stringify(bytes(input), (_, value: unknown) => bytes(value));
  return text.length > 4_000 ? `${text.slice(0, 4_000)}… (${text.length})` : text;
}
