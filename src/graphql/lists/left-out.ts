// What `@skip` and `@include` leave out of a query.
import { type FieldNode, type FragmentSpreadNode, type InlineFragmentNode, Kind } from "graphql";

/** What of a selection may have these directives. */
export type SelectedNode = FieldNode | FragmentSpreadNode | InlineFragmentNode;

/** A condition that is null, which the executors refuse, leaves nothing out. */
export function isLeftOut(
  { directives = [] }: SelectedNode,
  variables: Readonly<Record<string, unknown>>,
): boolean {
  return directives.some(({ name, arguments: [condition] = [] }) => {
    const { value } = condition ?? {};
    const holds =
      value?.kind === Kind.VARIABLE
        ? variables[value.name.value]
        : value?.kind === Kind.BOOLEAN
          ? value.value
          : undefined;
    return name.value === "skip" ? holds === true : name.value === "include" && holds === false;
  });
}
