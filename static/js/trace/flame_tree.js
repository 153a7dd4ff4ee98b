/** The nodes of a flame graph as a tree, and where each begins. */

/** @typedef {{ name: string, short: string, category: string, parent: number, depth: number, count: number, total: number, own: number }} FlameNode equal calls; `parent` is -1 for a root, times are in ns */
/** @typedef {FlameNode & { children: Placed[], left: number }} Placed */

/**
 * Return nodes with their children (the longest first) and where they begin, in ns from the left of the roots.
 *
 * @param {FlameNode[]} nodes parents before children
 */
export function placed(nodes) {
  /** @type {Placed[]} */
  const tree = nodes.map((node) => ({ ...node, children: [], left: 0 }));
  /** @type {Placed[]} */
  const roots = [];
  for (const node of tree) (node.parent < 0 ? roots : tree[node.parent].children).push(node);
  const place = (list, from) => {
    let left = from;
    for (const node of list.sort((a, b) => b.total - a.total)) {
      node.left = left;
      place(node.children, left);
      left += node.total;
    }
  };
  place(roots, 0);
  return { tree, roots };
}
