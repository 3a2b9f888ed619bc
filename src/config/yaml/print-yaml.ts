// Prints values as YAML: texts for a configuration that is written, and whole answers for people.
import { Document, isCollection, isScalar, visit } from "yaml";

/** Prints a text as a value of a configuration: in quotes, and with nothing in it that would be substituted. */
export function printText(text: string): string {
  return JSON.stringify(text.replaceAll("${", () => "$${"));
}

/** Prints a value as YAML for people. The values of the `flow` keys are each on one line, as JSON. */
export function printYaml(value: unknown, flow: ReadonlySet<string>): string {
  // A value that stands in two places is printed twice: readers need not know anchors.
  const document = new Document(value, { aliasDuplicateObjects: false });
  visit(document, {
    Pair(_, { key, value: node }) {
      if (!isScalar(key) || !flow.has(String(key.value)) || !isCollection(node)) return undefined;
      node.flow = true;
      visit(node, {
        Scalar(_, scalar) {
          if (typeof scalar.value === "string") scalar.type = "QUOTE_DOUBLE";
        },
      });
      return visit.SKIP;
    },
  });
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}
