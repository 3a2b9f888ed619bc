// The one spelling of an id of a trace or a span, in which it is answered and compared.

const hex = /^[0-9a-f]+$/i;
const hexOfOneCase = /^(?:[0-9a-f]+|[0-9A-F]+)$/;

/**
 * Of hex digits the same number in lower case, with at least `digits` of them: 32 of a trace, 16 of a span. Any other text
 * is an id as it stands; so are fewer digits in both cases, which no tracer writes without their zeros: they are of an
 * alphabet in which case matters.
 */
export function normaliseId(text: string, digits: 16 | 32): string {
  const isNumber = text.length < digits ? hexOfOneCase.test(text) : hex.test(text);
  return isNumber ? text.toLowerCase().padStart(digits, "0") : text;
}
