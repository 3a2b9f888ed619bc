// Elements of drawings, made by hand as those of the page are.

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Readonly<Record<string, string | number | undefined>>} [attributes] undefined is none
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function createSvg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * Lets a stretch of a drawing be chosen with the pointer. What is drawn over it shows the stretch meanwhile.
 * @param {SVGSVGElement} drawing
 * @param {(from: number, to: number) => void} choose parts of the width from 0 to 1, the smaller first
 */
export function attachBrush(drawing, choose) {
  const mark = createSvg("rect", { class: "brush", x: "0", y: "0", width: "0", height: "100%" });
  drawing.append(mark);
  /** @type {number | undefined} */
  let start;
  const locate = (/** @type {PointerEvent} */ event) => {
    const { left, width } = drawing.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const draw = (/** @type {number} */ from, /** @type {number} */ to) => {
    mark.setAttribute("x", `${from * 100}%`);
    mark.setAttribute("width", `${(to - from) * 100}%`);
  };
  drawing.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = locate(event);
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (start === undefined) return;
    const at = locate(event);
    draw(Math.min(start, at), Math.max(start, at));
  });
  drawing.addEventListener("pointerup", (event) => {
    if (start === undefined) return;
    const [from, to] = [start, locate(event)].sort((a, b) => a - b);
    start = undefined;
    draw(0, 0);
    // A click is no stretch.
    if (from !== undefined && to !== undefined && (to - from) * drawing.clientWidth >= 4) choose(from, to);
  });
  drawing.addEventListener("pointercancel", () => {
    start = undefined;
    draw(0, 0);
  });
}
