// Takes tokens and credentials out of texts, before they are logged or shown.

export const redactedText = "[redacted]";
const secretName = "(?:token|secret|passw(?:or)?d|api[_-]?key|authorization)";
// In headers, which errors quote, in parameters of URLs and forms whose name ends so, in the user's part of URLs, and signed
// tokens wherever they stand. A word after "basic" is no credential: those are Base64.
const credentialPatterns = [
  /(\b(?:bearer|apikey)\s+|(?:token|secret|passw(?:or)?d|api[_-]?key)=)[^\s&"'\\#,;]+|(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*/gi,
  /(\b(?:[Bb]asic|BASIC)\s+)(?![A-Za-z]?[a-z]+(?![\w+/=:-]))[^\s&"'\\#,;]+/g,
  new RegExp(String.raw`(${secretName}(?:=|'\s*:\s*)')[^'"\\]+`, "gi"),
  /(:\/\/)[^\s/?#"\\]+(?=@)/g,
];
/**
 * The beginning of a text in quotes, of a member or a parameter with such a name, with the backslashes before its quote: those of the
 * member's name, and behind `=` one of these.
 */
const buildSecretStart = (behindParameter: string): RegExp =>
  new RegExp(
    String.raw`${secretName}(?:(?<member>\\*)"\s*:\s*\k<member>"|=(?<parameter>${behindParameter})")`,
    "gi",
  );
const secretStart = buildSecretStart(String.raw`|\\|\\{3}|\\{7}`);
/** In a line of JSON, a quote without a backslash ends the text that the parameter stands in. */
const secretStartInJson = buildSecretStart(String.raw`\\|\\{3}|\\{7}`);

/** Replaces whatever looks like a token or credential in the text. */
export function redactCredentials(text: string): string {
  return redactAll(text, secretStart);
}

/** The same in a line of the log, which stays JSON. */
export function redactLogLine(line: string): string {
  return redactAll(line, secretStartInJson);
}

function redactAll(text: string, secretStart: RegExp): string {
  let redacted = "";
  let done = 0;
  for (const { index, 0: start, groups = {} } of text.matchAll(secretStart)) {
    // Inside of a text that was redacted.
    if (index < done) continue;
    const from = index + start.length;
    const backslashes = groups.member ?? groups.parameter ?? "";
    redacted += text.slice(done, from);
    done = findQuotedEnd(text, from, backslashes.length);
    if (done > from) redacted += redactedText;
  }
  const rest = redacted + text.slice(done);
  return credentialPatterns.reduce((kept, pattern) => kept.replace(pattern, `$1${redactedText}`), rest);
}

/**
 * Where a JSON text ends that began before `from`, after a quote with so many backslashes: 0, or 1, 3, 7 … inside of other texts.
 * The last bits of the number of backslashes before a quote tell whether it ends the text, or one around it.
 */
function findQuotedEnd(text: string, from: number, escapes: number): number {
  const mask = 2 * escapes + 1;
  for (let quote = text.indexOf('"', from); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let begin = quote;
    while (begin > from && text[begin - 1] === "\\") begin -= 1;
    const backslashes = quote - begin;
    if ((backslashes & mask) !== mask) return quote - (backslashes & escapes);
  }
  return text.length;
}
