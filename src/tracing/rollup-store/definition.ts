// The version of what figures mean. Figures of another one are made anew.

/**
 * A digest of what `src/tracing` answers over a fixed corpus, with which `test/tracing/rollup-store/definition.test.ts` compares
 * it: whoever changes the meaning of figures writes the new digest here, and all that was kept is made anew.
 */
export const definition = "fBQqbtoGVY73Q63y";
