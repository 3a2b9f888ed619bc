/** A signal that never aborts: whoever hangs is ended by the time-out of its test, which no slow machine reaches. */
export const never = new AbortController().signal;
