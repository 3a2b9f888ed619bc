// Instants are nanoseconds in a branded bigint, so that a number of milliseconds is never mistaken for one. Text is parsed
// strictly: `Date.parse` accepts "1" and 2026-02-30, which the contract does not.

/** Nanoseconds since 1970-01-01T00:00:00Z. */
export type Instant = bigint & { readonly __unit: "ns since 1970-01-01T00:00:00Z" };
export type Millis = number;

export const second: Millis = 1_000;
export const minute = 60 * second;
export const hour = 60 * minute;
export const day = 24 * hour;

/** Both ends belong to the range; `from <= to`. */
export interface TimeRange {
  readonly from: Instant;
  readonly to: Instant;
}

export const nanosPerMilli = 1_000_000n;

/** The latest of some instants; undefined where there is none. */
export function selectNewest(instants: readonly (Instant | undefined)[]): Instant | undefined {
  let newest: Instant | undefined;
  for (const instant of instants) {
    if (instant !== undefined && (newest === undefined || instant > newest)) newest = instant;
  }
  return newest;
}

/** Every instant that a source can hold: nanoseconds since 1970 in 64 bits. */
export const allTime: TimeRange = { from: 0n as Instant, to: (2n ** 63n - 1n) as Instant };

const pattern =
  /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d{2}):(\d{2}))$/;

const firstMilli: Millis = -62_167_219_200_000;
/** The end of the year 9999: a later time has no text. */
export const lastMilli: Millis = 253_402_300_799_999;

/**
 * Parses an ISO 8601 time with 0 to 9 fraction digits and `Z` or `±hh:mm`. Returns undefined for a text without a zone,
 * a date that the calendar does not have, a leap second, or a time outside the years 0000 to 9999 in UTC.
 */
export function parseInstant(text: string): Instant | undefined {
  const match = pattern.exec(text);
  if (match === null) return undefined;
  const [, year, month, date, hours, minutes, seconds, fraction = "", sign, ...zone] = match;
  const [zoneHours = "0", zoneMinutes = "0"] = zone;
  if (Number(hours) > 23 || Number(minutes) > 59 || Number(seconds) > 59) return undefined;
  if (Number(zoneHours) > 23 || Number(zoneMinutes) > 59) return undefined;
  const found = new Date(0);
  // Date.UTC would read the years 0 to 99 as 1900 to 1999.
  found.setUTCFullYear(Number(year), Number(month) - 1, Number(date));
  if (found.getUTCMonth() !== Number(month) - 1 || found.getUTCDate() !== Number(date)) return undefined;
  found.setUTCHours(Number(hours), Number(minutes), Number(seconds));
  const offset = (sign === "-" ? -1 : 1) * (Number(zoneHours) * hour + Number(zoneMinutes) * minute);
  const utc = found.getTime() - offset;
  if (utc < firstMilli || utc > lastMilli) return undefined;
  const millis = BigInt(utc);
  return (millis * nanosPerMilli + BigInt(fraction.padEnd(9, "0"))) as Instant;
}

export function fromMillis(millis: Millis): Instant {
  return (BigInt(millis) * nanosPerMilli) as Instant;
}

/** Milliseconds, rounded towards the past. */
export function toMillis(instant: Instant): Millis {
  const millis = Number(instant / nanosPerMilli);
  return instant % nanosPerMilli < 0n ? millis - 1 : millis;
}

export function floorToMilli(instant: Instant): Instant {
  const rest = instant % nanosPerMilli;
  return (rest < 0n ? instant - rest - nanosPerMilli : instant - rest) as Instant;
}

export function isFinerThanMilli(instant: Instant): boolean {
  return instant % nanosPerMilli !== 0n;
}

/** The last nanosecond of the instant's millisecond. */
export function endOfMilli(instant: Instant): Instant {
  return (floorToMilli(instant) + nanosPerMilli - 1n) as Instant;
}

/** A time as X.509 certificates of node have it, such as `Jan 15 10:00:00 2027 GMT`; NaN for what is none. */
export function parseDateMillis(text: string): Millis {
  return Date.parse(text);
}

/** For a library that requires a `Date`; rounded towards the past. */
export function toDate(instant: Instant): Date {
  return new Date(toMillis(instant));
}

/** The second that was printed last, without its fraction: consecutive lines often share it. */
let lastPrintedSecond = { start: Number.NaN, text: "" };

/** All texts of three digits: joining them costs a third of printing each number. */
const threeDigits = Array.from({ length: 1_000 }, (_, number) => String(number).padStart(3, "0"));
/** The same without zeros at the end. */
const lastThreeDigits = threeDigits.map((text) => text.replace(/0+$/, ""));

/** UTC with exactly three fraction digits. `parseInstant` returns no years outside 0000–9999. */
export function printMillis(millis: Millis): string {
  return `${printToMilli(millis)}Z`;
}

/** UTC with exactly three fraction digits, rounded towards the past. */
export function printInstantToMilli(instant: Instant): string {
  return printMillis(toMillis(instant));
}

function printToMilli(millis: Millis): string {
  const start = Math.floor(millis / second) * second;
  if (start !== lastPrintedSecond.start) {
    lastPrintedSecond = { start, text: new Date(start).toISOString().slice(0, -4) };
  }
  return lastPrintedSecond.text + threeDigits[millis - start];
}

/** UTC with nine fraction digits, as bounds of ranges are sent to a source. */
export function printNanos(instant: Instant): string {
  const { millis, micros, nanos } = splitInstant(instant);
  return `${printToMilli(millis)}${threeDigits[micros]}${threeDigits[nanos]}Z`;
}

/** UTC with as many fraction digits as the instant needs, and at least three. */
export function printInstant(instant: Instant): string {
  const { millis, micros, nanos } = splitInstant(instant);
  const rest = nanos === 0 ? lastThreeDigits[micros] : `${threeDigits[micros]}${lastThreeDigits[nanos]}`;
  return `${printToMilli(millis)}${rest}Z`;
}

/** The millisecond from which instants are counted with doubles: bigints cost several times as much. */
let lastBase = { instant: 0n, millis: 0 };
/** Nanoseconds of eleven days: doubles represent each exactly, also as a fraction of a millisecond. */
const maxExactNanos = 1e15;

function splitInstant(instant: Instant): {
  readonly millis: Millis;
  readonly micros: number;
  readonly nanos: number;
} {
  let since = Number(instant - lastBase.instant);
  if (!(since >= 0 && since < maxExactNanos)) {
    const millis = toMillis(instant);
    lastBase = { instant: fromMillis(millis), millis };
    since = Number(instant - lastBase.instant);
  }
  const whole = Math.floor(since / 1e6);
  const rest = since - whole * 1e6;
  const micros = Math.floor(rest / 1_000);
  return { millis: lastBase.millis + whole, micros, nanos: rest - micros * 1_000 };
}

/** An inclusive end: a whole millisecond stands for all of it, up to its last nanosecond. */
export function toInclusiveEnd(instant: Instant): Instant {
  return isFinerThanMilli(instant) ? instant : endOfMilli(instant);
}

export const earlier = (a: Instant, b: Instant): Instant => (a < b ? a : b);
export const later = (a: Instant, b: Instant): Instant => (a > b ? a : b);

/**
 * Whether something happened at `past`, less than `length` ago. A time that is still to come is none: the clock was set back since,
 * and would otherwise keep what is old for as long.
 */
export function isRecent(past: Millis, at: Millis, length: Millis): boolean {
  return past <= at && at - past < length;
}

/** The system clock. Everything below `main.ts` receives a clock as a parameter instead. */
export function now(): Instant {
  return fromMillis(Date.now());
}

/** Units of durations, the longest first. */
export const durationUnits = [
  ["d", day],
  ["h", hour],
  ["m", minute],
  ["s", second],
  ["ms", 1],
] as const;

/** Parses `30d`, `10s` or `250ms`; undefined for any other text. */
export function parseDuration(text: string): Millis | undefined {
  const [, digits, name] = /^(\d+)(ms|s|m|h|d)$/.exec(text) ?? [];
  const size = durationUnits.find(([unit]) => unit === name)?.[1];
  return size === undefined ? undefined : Number(digits) * size;
}

/** Prints a whole number of milliseconds in the longest unit that divides it, as `parseDuration` reads it. */
export function printDuration(length: Millis): string {
  const [unit, size] = durationUnits.find(([, size]) => length % size === 0) ?? ["ms", 1];
  return `${length / size}${unit}`;
}

/** The date of a day such as `2027-01-31`, as HTTP headers have it (RFC 9110, section 5.6.7). */
export function formatHttpDate(day: string): string {
  return new Date(day).toUTCString();
}
