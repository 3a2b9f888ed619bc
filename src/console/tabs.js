// The tabs at the top of the page: a link to each view, with the site that is shown.
import { printAddress } from "./base/address.js";
import { createElement } from "./base/dom.js";
import { views } from "./views.js";

/** @typedef {import("./base/address.js").ViewName} ViewName */

const names = /** @type {const} */ ([
  "logs",
  "traces",
  "errors",
  "actions",
  "slow",
  "map",
  "deploys",
  "metrics",
  "visuals",
  "kubernetes",
  "checkins",
]);

/**
 * Puts the tabs where they stand.
 * @param {HTMLElement} root
 * @returns {(shown: ViewName, site: string) => void} marks the tab of the view that is shown
 */
export function createTabs(root) {
  const links = new Map(names.map((name) => [name, createElement("a", {}, views[name].title)]));
  root.append(...links.values());
  return (shown, site) => {
    for (const [name, link] of links) {
      link.href = printAddress(name, { site });
      const isShown = name === shown || (name === "traces" && shown === "trace");
      if (isShown) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    root.hidden = false;
    // On a small screen not all of them are in sight.
    const link = links.get(shown === "trace" ? "traces" : shown);
    if (link !== undefined) root.scrollLeft = link.offsetLeft - (root.clientWidth - link.offsetWidth) / 2;
  };
}
