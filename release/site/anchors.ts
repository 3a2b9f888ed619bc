// The anchors that GitHub gives the headings of a page, and that links between pages name.

/** Returns a function that is called with each heading of a page, in their order; a repeated one is numbered. */
export function createAnchors(): (title: string) => string {
  const seen = new Map<string, number>();
  return (title) => {
    const anchor = title
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, "")
      .replaceAll(" ", "-");
    const count = seen.get(anchor) ?? 0;
    seen.set(anchor, count + 1);
    return count === 0 ? anchor : `${anchor}-${count}`;
  };
}
