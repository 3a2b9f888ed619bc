// What a store is asked for: a backend's functions, each of which notes its name before it answers.

export interface CallLog {
  /** The names in the order of the calls. */
  readonly asked: string[];
  /** The same function, which notes `name` with each call. */
  readonly counted: <A extends readonly unknown[], R>(
    name: string,
    ask: (...given: A) => R,
  ) => (...given: A) => R;
}

export function createCallLog(): CallLog {
  const asked: string[] = [];
  return {
    asked,
    counted:
      (name, ask) =>
      (...given) => {
        asked.push(name);
        return ask(...given);
      },
  };
}
