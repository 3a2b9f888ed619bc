// VictoriaMetrics takes PromQL, but for two forms that it reads otherwise without saying so. They have the same meaning in
// forms of its own.
import type { Millis } from "../../../src/core/time.ts";
import type { Expression } from "./promql.ts";

/**
 * The expression with the meaning that it has to Prometheus. `or on (__name__)` takes series for the same that differ in
 * their names, and the last sample of an instant selector may lie no further back than the series' own interval.
 */
export function toMetricsQl(expression: Expression, lookBack: Millis): Expression {
  const translate = (one: Expression): Expression => toMetricsQl(one, lookBack);
  switch (expression.kind) {
    case "selector":
    case "range":
    case "number":
      return expression;
    case "call": {
      const [of] = expression.arguments;
      if (expression.function === "timestamp" && of?.kind === "selector")
        return { ...expression, arguments: [{ kind: "range", of, length: lookBack, offset: 0 }] };
      return { ...expression, arguments: expression.arguments.map(translate) };
    }
    case "aggregate":
      return { ...expression, of: translate(expression.of) };
    case "binary": {
      const [left, right] = [translate(expression.left), translate(expression.right)];
      const isUnion = expression.operator === "or" && expression.on?.join() === "__name__";
      return isUnion
        ? { kind: "call", function: "union", arguments: [left, right] }
        : { ...expression, left, right };
    }
  }
  return expression satisfies never;
}
