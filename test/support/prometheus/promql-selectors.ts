// Parses PromQL with the grammar of Prometheus' own editor, independently of our printer: the selectors of a query and
// their matchers.
import { parser } from "@prometheus-io/lezer-promql";

export interface ParsedMatcher {
  readonly label: string;
  readonly operator: string;
  readonly value: string;
}

/** The matchers of every selector in the query, in order. @throws {SyntaxError} if the query does not parse */
export function parseSelectors(query: string): ParsedMatcher[][] {
  const selectors: ParsedMatcher[][] = [];
  // A function of MetricsQL. The grammar does not count the arguments of those that it knows.
  const known = query.replaceAll(/\bunion\(/g, "clamp(");
  const cursor = parser.parse(known).cursor();
  do {
    const text = known.slice(cursor.from, cursor.to);
    if (cursor.type.isError) throw new SyntaxError(`not PromQL at ${cursor.from}: ${query}`);
    if (cursor.name === "VectorSelector") {
      // A name before the braces would be a matcher too, but our printer never writes one.
      if (!text.startsWith("{")) throw new SyntaxError(`a selector that is not all braces: ${text}`);
      selectors.push([]);
    }
    if (cursor.name === "UnquotedLabelMatcher" || cursor.name === "QuotedLabelMatcher") {
      const [label, operator, value] = cursor.node
        .getChildren("LabelName")
        .concat(cursor.node.getChildren("QuotedLabelName"))
        .concat(cursor.node.getChildren("MatchOp"))
        .concat(cursor.node.getChildren("StringLiteral"))
        .map(({ from, to }) => known.slice(from, to));
      if (label === undefined || operator === undefined || value === undefined) throw new SyntaxError(text);
      selectors.at(-1)?.push({ label: unquote(label), operator, value: unquote(value) });
    }
  } while (cursor.next());
  return selectors;
}

/** As Go's strconv.Unquote, for the literals that our printer writes. */
function unquote(literal: string): string {
  if (!literal.startsWith('"')) return literal;
  const body = literal.slice(1, -1);
  return body.replace(/\\(x[0-9a-f]{2}|u[0-9a-f]{4}|.)/gs, (_, escaped: string) => {
    if (escaped.length > 1) return String.fromCharCode(Number.parseInt(escaped.slice(1), 16));
    const known: Record<string, string> = { n: "\n", r: "\r", "\\": "\\", '"': '"' };
    const char = known[escaped];
    if (char === undefined) throw new SyntaxError(`the escape \\${escaped}`);
    return char;
  });
}
