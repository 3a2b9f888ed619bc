// Normalises ids of traces and spans to the one spelling in which they are returned and compared.

const hex = /^[0-9a-f]+$/i;
const hexOfOneCase = /^(?:[0-9a-f]+|[0-9A-F]+)$/;

/**
 * Hex digits become lower case and are padded with zeros to `digits`: 32 for a trace, 16 for a span. Any other text stays as
 * it is. So do fewer digits in mixed case: no tracer drops their zeros, so that they belong to a case-sensitive alphabet.
 */
export function normaliseId(text: string, digits: 16 | 32): string {
  const isNumber = text.length < digits ? hexOfOneCase.test(text) : hex.test(text);
  return isNumber ? text.toLowerCase().padStart(digits, "0") : text;
}
