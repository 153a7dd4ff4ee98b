/** The nodes of a flame graph as a tree, and where each begins. */

/**
 * Return nodes with their children (the longest first) and where they begin, in ns from the left of the roots.
 *
 * @param {{ name: string, parent: number, total: number }[]} nodes parents before children
 */
export function placed(nodes) {
  /** @type {any[]} */
  const tree = nodes.map((node) => ({ ...node, children: [], left: 0 }));
  /** @type {any[]} */
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
