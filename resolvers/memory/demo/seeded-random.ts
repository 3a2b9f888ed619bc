// Chance that is the same everywhere: numbers as a function of a key.

/** Numbers from 0 up to before 1. */
export type Random = () => number;

export function pick<T>(random: Random, choices: readonly [T, ...T[]]): T {
  return choices[Math.floor(random() * choices.length)] ?? choices[0];
}

/** mulberry32 over an FNV-1a hash of the key: small, fast, and the same everywhere. */
export function createRandom(key: string): Random {
  let state = 0x811c9dc5;
  for (let index = 0; index < key.length; index += 1) {
    state = Math.imul(state ^ key.charCodeAt(index), 0x01000193);
  }
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** So many lower-case hex digits. */
export function generateHex(random: Random, digits: number): string {
  let text = "";
  while (text.length < digits) text += Math.floor(random() * 16).toString(16);
  return text;
}
