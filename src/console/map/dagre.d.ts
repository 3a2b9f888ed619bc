// Types of the module `dagre.js`, which the server serves from its package: only what the console uses.
interface Placed {
  readonly x: number;
  readonly y: number;
}
export class Graph {
  setGraph(options: Readonly<Record<string, string | number>>): void;
  setDefaultEdgeLabel(make: () => object): void;
  setNode(id: string, size: { readonly width: number; readonly height: number }): void;
  setEdge(from: string, to: string): void;
  graph(): { readonly width?: number; readonly height?: number };
  node(id: string): Placed;
}
export function layout(graph: Graph): void;
