import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Severity, severities } from "#src/core/rows.ts";
import { listSeverityWords, parseSeverity } from "#src/core/severity-words.ts";

describe("severity words", () => {
  test.each<readonly [Severity, readonly string[]]>([
    ["trace", ["trace", "V", "T", "FINEST", "TRC", "trce", "silly", "trace8", "TRACE4"]],
    ["debug", ["DEBUG5", "D", "D2", "dbg", "dbug", "Verbose", "FINE", "CONFIG", "debugging"]],
    ["info", ["LOG", "log", "I", "i", "INF", "Information", "informational", "System", "http", "SUCCESS"]],
    ["notice", ["notification", "Notifications", "Note", "NOTE", "n", "NOTI"]],
    ["warn", ["W", "WRN", "Warnings", "WARN4", "DEPRECATION"]],
    ["error", ["E", "ERR", "ERRO", "errors", "SEVERE", "fail", "ERROR2"]],
    ["critical", ["C", "CRIT", "dpanic", "Fault"]],
    ["alert", ["ALERT", "alerts"]],
    ["fatal", ["F", "FATA", "FTL", "emerg", "Emergencies", "PANIC", "PNC", "FATAL3"]],
    ["unknown", ["", "A", "S", "default", "none", "unknown", "3", "debug6", "toString", "warn ", "x"]],
  ])("reads the words of %s", (severity, words) => {
    expect(words.map((word) => [word, parseSeverity(word)])).toEqual(words.map((word) => [word, severity]));
  });

  test("are read in any case, and are no word of another severity", () => {
    const word = fc.constantFrom(
      ...severities.flatMap((severity) => listSeverityWords(severity).map((own) => ({ severity, own }))),
    );
    fc.assert(
      fc.property(word, fc.infiniteStream(fc.boolean()), ({ severity, own }, upper) => {
        const spelled = [...own]
          .map((letter) => (upper.next().value ? letter.toUpperCase() : letter))
          .join("");
        expect(parseSeverity(spelled)).toBe(severity);
      }),
    );
    const all = severities.flatMap(listSeverityWords);
    expect(new Set(all).size).toBe(all.length);
  });

  // An index compares by ASCII letters, and by whole words of a text.
  test("are ASCII letters without k, whose lower case is also that of the Kelvin sign", () => {
    const known = severities.filter((severity) => severity !== "unknown");
    for (const word of known.flatMap(listSeverityWords)) expect(word).toMatch(/^[a-jl-z]+\d?$/);
    expect(severities.map((severity) => listSeverityWords(severity)[0])).toEqual(severities);
  });

  test("fit into one expression of a server, whose limit is 1,000 characters", () => {
    expect(severities.flatMap(listSeverityWords).join("|").length).toBeLessThan(1_000);
  });
});
