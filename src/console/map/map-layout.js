// Where the services of a map stand. A service that calls the site stands before it, one that is called behind it; a
// service that does both stands on both sides, as the API answers two edges for it.
/** @typedef {{ readonly service: string, readonly count: number, readonly error_count: number, readonly mean: number, readonly p_90: number, readonly p_95: number }} Edge */
/** @typedef {{ readonly upstream: readonly Edge[], readonly downstream: readonly Edge[], readonly internal: readonly Edge[] }} SiteEdges */
/** @typedef {"upstream" | "downstream" | "internal"} Side */
/**
 * Places are the middle of a node, in pixels from the upper left corner. The site itself has no edge.
 * @typedef {{ readonly name: string, readonly side: Side | "site", readonly edge?: Edge, readonly x: number, readonly y: number }} PlacedNode
 */
/** From the right of one node to the left of the other. @typedef {{ readonly side: Side, readonly edge: Edge, readonly from: Point, readonly to: Point }} PlacedEdge */
/** @typedef {{ readonly x: number, readonly y: number }} Point */

export const nodeSize = { width: 176, height: 36 };

/** @param {SiteEdges} edges @returns {readonly { readonly side: Side, readonly edge: Edge }[]} */
export function listEdges({ upstream, downstream, internal }) {
  return [
    ...upstream.map((edge) => ({ side: /** @type {const} */ ("upstream"), edge })),
    ...internal.map((edge) => ({ side: /** @type {const} */ ("internal"), edge })),
    ...downstream.map((edge) => ({ side: /** @type {const} */ ("downstream"), edge })),
  ];
}

/**
 * @param {Pick<typeof import("./dagre.js"), "Graph" | "layout">} dagre
 * @param {string} site @param {SiteEdges} edges
 * @returns {{ readonly width: number, readonly height: number, readonly nodes: readonly PlacedNode[], readonly edges: readonly PlacedEdge[] }}
 */
export function layOutMap({ Graph, layout }, site, edges) {
  const graph = new Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 90, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  const all = listEdges(edges).map(({ side, edge }) => ({ side, edge, id: `${side} ${edge.service}` }));
  graph.setNode("site", { ...nodeSize });
  for (const { side, id } of all) {
    graph.setNode(id, { ...nodeSize });
    if (side === "upstream") graph.setEdge(id, "site");
    else graph.setEdge("site", id);
  }
  layout(graph);
  const { width = 0, height = 0 } = graph.graph();
  const place = (/** @type {string} */ id) => {
    const { x, y } = graph.node(id);
    return { x, y };
  };
  return {
    width,
    height,
    nodes: [
      { ...place("site"), name: site, side: "site" },
      ...all.map(({ side, edge, id }) => ({ ...place(id), name: edge.service, side, edge })),
    ],
    edges: all.map(({ side, edge, id }) => {
      const other = place(id);
      const [caller, callee] = side === "upstream" ? [other, place("site")] : [place("site"), other];
      const half = nodeSize.width / 2;
      return {
        side,
        edge,
        from: { x: caller.x + half, y: caller.y },
        to: { x: callee.x - half, y: callee.y },
      };
    }),
  };
}
