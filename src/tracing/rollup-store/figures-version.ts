// The version of what figures mean. Figures of another version are made anew.

/**
 * A digest of what `src/tracing` answers over a fixed corpus, with which `test/tracing/rollup-store/figures-version.test.ts` compares
 * it: whoever changes the meaning of figures writes the new digest here, and all that was kept is made anew.
 */
export const figuresVersion = "fBQqbtoGVY73Q63y";
