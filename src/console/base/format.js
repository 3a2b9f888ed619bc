// Figures and texts for people. Times are shown in UTC, as the API's are, or in the zone of the browser.

let isLocal = false;

/** In which zone all times are shown from now on. @param {"utc" | "local"} zone */
export function setZone(zone) {
  isLocal = zone === "local";
}

/** What stands behind a time: `UTC`, or how far the browser's zone is from it then. @param {string} timestamp */
function formatZone(timestamp) {
  if (!isLocal) return "UTC";
  const minutes = -new Date(timestamp).getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((one) =>
    String(one).padStart(2, "0"),
  );
  return `${minutes < 0 ? "−" : "+"}${hours}:${rest}`;
}

/** `2026-01-31T12:00:00.123Z` as `2026-01-31 12:00:00.123`, its fraction as it is. @param {string} timestamp */
function formatInZone(timestamp) {
  const utc = timestamp.replace("T", " ").replace("Z", "");
  if (!isLocal) return utc;
  const time = new Date(timestamp);
  if (Number.isNaN(time.getTime())) return utc;
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}${utc.slice(19)}`;
}

/** `2026-01-31T12:00:00.123Z` as `01-31 12:00:00.123`. @param {string} timestamp */
export function formatShortTime(timestamp) {
  return formatInZone(timestamp).slice(5, 23);
}

/** @param {string} timestamp */
export function formatLongTime(timestamp) {
  return timestamp === "" ? "" : `${formatInZone(timestamp)} ${formatZone(timestamp)}`;
}

/** To the minute, without a zone. @param {string} timestamp */
export function formatMinute(timestamp) {
  return formatInZone(timestamp).slice(0, 16);
}

/** The head of a column or an axis of times. */
export function formatZoneName() {
  return isLocal ? "local" : "UTC";
}

/** A range of times, the day and the zone told once where both ends have one. @param {string} from @param {string} to */
export function formatRange(from, to) {
  const [zone, end] = [formatZone(from), formatLongTime(to)];
  const begin = zone === formatZone(to) ? formatInZone(from) : `${formatInZone(from)} ${zone}`;
  return `${begin} – ${begin.slice(0, 10) === end.slice(0, 10) ? end.slice(11) : end}`;
}

/** In the unit of what is shown: what is rounded up may have reached the next one. @param {number} millis */
export function formatDuration(millis) {
  if (millis < 0.9995) return `${Math.round(millis * 1_000)} µs`;
  if (millis < 9.995) return `${millis.toFixed(2)} ms`;
  if (millis < 999.5) return `${Math.round(millis)} ms`;
  if (millis < 59_995) return `${(millis / 1_000).toFixed(2)} s`;
  const seconds = Math.round(millis / 1_000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** The two largest units of a length of time. @param {number} seconds */
export function formatAge(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [
    Math.floor(whole / 86_400),
    Math.floor(whole / 3_600) % 24,
    Math.floor(whole / 60) % 60,
  ];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min` : `${whole} s`;
}

/** @param {number} value */
export function formatBytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  let rest = value;
  while (Math.abs(rest) >= 1_024 && at < units.length - 1) {
    rest /= 1_024;
    at += 1;
  }
  return `${at === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${units[at]}`;
}

/** Cores of so many billionths. @param {number} nanoCores */
export function formatCores(nanoCores) {
  return (nanoCores / 1e9).toFixed(nanoCores < 1e8 ? 3 : 2);
}

/** Fractions are cut to six digits in all, whole numbers never: a byte count is to be the API's own. */
const plain = new Intl.NumberFormat("en", {
  maximumSignificantDigits: 6,
  maximumFractionDigits: 0,
  roundingPriority: "morePrecision",
});
/** @param {number} value */
export function formatNumber(value) {
  return Math.abs(value) >= 1e15 || (value !== 0 && Math.abs(value) < 1e-6)
    ? value.toExponential(4)
    : plain.format(value);
}

/** The units that Prometheus' and OpenTelemetry's names end in, and their short forms. @type {Readonly<Record<string, string>>} */
const units = {
  seconds: "seconds",
  milliseconds: "milliseconds",
  millis: "milliseconds",
  ms: "milliseconds",
  microseconds: "microseconds",
  us: "microseconds",
  nanoseconds: "nanoseconds",
  ns: "nanoseconds",
  minutes: "minutes",
  hours: "hours",
  days: "days",
  bytes: "bytes",
  kilobytes: "kilobytes",
  bits: "bits",
  megabytes: "megabytes",
  percent: "percent",
  percentage: "percent",
  ratio: "ratio",
  celsius: "°C",
  hertz: "hertz",
  volts: "volts",
  amperes: "amperes",
  joules: "joules",
  watts: "watts",
  meters: "meters",
  cores: "cores",
  millicores: "millicores",
  nanocores: "nanocores",
  rpm: "rounds a minute",
};

/**
 * The unit that a metric's name ends in; where it has none, what the field is.
 * @param {string} name @param {string} field
 */
export function findUnit(name, field) {
  if (field === "count") return "observations";
  const words = name
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter(Boolean);
  const last = words.at(-1) ?? "";
  const word = ["total", "sum", "avg", "max", "min"].includes(last) ? (words.at(-2) ?? "") : last;
  return Object.hasOwn(units, word) ? (units[word] ?? field) : field;
}

/**
 * How many rows of a list are shown: all of a range, or those that were loaded up to now.
 * @param {number} count @param {boolean} isAll @param {string} one @param {string} [many]
 */
export function formatLoaded(count, isAll, one, many) {
  return isAll ? formatCount(count, one, many) : `${formatCount(count, one, many)} loaded, there are more`;
}

/**
 * How many rows a table has, of which no more than the first so many are read.
 * @param {number} count of those that were read
 * @param {number | undefined} total of all; undefined where it is not known that there are no more
 * @param {string} order which ones are the first
 * @param {string} one @param {string} many
 */
export function formatFirst(count, total, order, one, many) {
  if (total === undefined) return `${formatCount(count, one, many)}, ${order}, there may be more`;
  return total > count
    ? `${plain.format(count)} of ${formatCount(total, one, many)}, ${order}`
    : formatCount(count, one, many);
}

/** @param {number} count @param {string} one @param {string} [many] */
export function formatCount(count, one, many = `${one}s`) {
  return `${plain.format(count)} ${count === 1 ? one : many}`;
}

/**
 * A text in pieces, of which those that are sought are hits. Texts that overlap are one hit.
 * @param {string} text
 * @param {readonly string[]} sought
 * @returns {readonly { readonly text: string, readonly isHit: boolean }[]} that make up the text; none is empty
 */
export function splitMatches(text, sought) {
  const places = sought
    .filter((needle) => needle !== "")
    .flatMap((needle) => findPlaces(text, needle))
    .sort((a, b) => a.start - b.start);
  /** @type {{ text: string, isHit: boolean }[]} */
  const pieces = [];
  let [from, at] = [0, 0];
  while (from < text.length) {
    let place = places[at];
    const start = place?.start ?? text.length;
    if (start > from) pieces.push({ text: text.slice(from, start), isHit: false });
    let end = start;
    for (; place !== undefined && place.start <= end; place = places[at]) {
      end = Math.max(end, place.end);
      at += 1;
    }
    if (end > start) pieces.push({ text: text.slice(start, end), isHit: true });
    from = end;
  }
  return pieces;
}

/** @param {string} text @param {string} needle @returns {readonly { readonly start: number, readonly end: number }[]} */
function findPlaces(text, needle) {
  const places = [];
  for (let start = text.indexOf(needle); start !== -1; start = text.indexOf(needle, start + needle.length))
    places.push({ start, end: start + needle.length });
  return places;
}

/** Characters that are not seen, or that turn the text around them: controls, direction marks, zero widths. */
const invisible = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Surrogate}]/u;
/** A joiner is part of what it joins (emoji, scripts of India), and cannot hide anything. */
const harmless = /^(?:\u200c|\u200d|\u00ad)$/;

/**
 * A text in pieces, of which those that nobody would see are spelt out.
 * @param {string} text
 * @param {{ readonly breaks: boolean }} options `breaks`: line breaks and tabs stay as they are
 * @returns {readonly { readonly text: string, readonly spelt: boolean }[]}
 */
export function splitInvisible(text, { breaks }) {
  if (!invisible.test(text)) return [{ text, spelt: false }];
  /** @type {{ text: string, spelt: boolean }[]} */
  const pieces = [];
  for (const character of text) {
    const stays =
      !invisible.test(character) || harmless.test(character) || (breaks && /[\n\t]/.test(character));
    const piece = stays ? character : escapeCharacter(character);
    const last = pieces.at(-1);
    if (last?.spelt === !stays) last.text += piece;
    else pieces.push({ text: piece, spelt: !stays });
  }
  return pieces;
}

/** More elements of one text would hold up the page, and whoever writes log lines could lock its readers out. */
const maxPieces = 500;
/** Of texts in one line, which show a part of that. */
const maxLineCharacters = 10_000;

/**
 * A text from outside as it is shown: what is sought in it, and within that what is spelt out. Beyond some hundred pieces the
 * rest is one, spelt out but not set apart.
 * @param {string} text
 * @param {{ readonly breaks?: boolean, readonly sought?: readonly string[], readonly most?: number }} options as of `renderUntrusted`
 * @returns {readonly { readonly isHit: boolean, readonly pieces: ReturnType<typeof splitInvisible> }[]}
 */
export function splitUntrusted(text, { breaks = false, sought = [], most = maxLineCharacters }) {
  const shown = breaks || text.length <= most ? text : `${cutText(text, most)}…`;
  /** @param {string} own */
  const spell = (own) => splitInvisible(own.toWellFormed(), { breaks });
  /** @type {{ isHit: boolean, pieces: ReturnType<typeof splitInvisible> }[]} */
  const parts = [];
  let [from, left] = [0, maxPieces];
  for (const { text: own, isHit } of splitMatches(shown, sought)) {
    const pieces = spell(own);
    parts.push({ isHit, pieces: pieces.slice(0, left) });
    from += own.length;
    const unseparated = pieces.slice(left);
    left -= pieces.length;
    if (left > 0) continue;
    const rest = [...unseparated, ...spell(shown.slice(from))].map((piece) => piece.text).join("");
    return rest === "" ? parts : [...parts, { isHit: false, pieces: [{ text: rest, spelt: false }] }];
  }
  return parts;
}

/** Not within a character of two units. @param {string} text @param {number} most */
function cutText(text, most) {
  return text.slice(0, most).replace(/[\ud800-\udbff]$/, "");
}

/** A text from outside where there are no elements to set it apart, what is invisible in it spelt out. @param {string} text */
export function printVisible(text) {
  return splitInvisible(text.toWellFormed(), { breaks: false })
    .map((piece) => piece.text)
    .join("");
}

/** @param {string} character */
function escapeCharacter(character) {
  const known = { "\n": "\\n", "\t": "\\t", "\r": "\\r", "\u001b": "\\e" };
  const code = character.codePointAt(0) ?? 0;
  return Object.hasOwn(known, character)
    ? known[/** @type {keyof typeof known} */ (character)]
    : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}
