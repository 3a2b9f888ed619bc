// "Publish": the chart as the file that publishes it, to be copied to the server.
import { copyText } from "../base/controls.js";
import { createButton, createElement } from "../base/dom.js";
import { generateVisualId, printVisual } from "./visual-yaml.js";

/** @typedef {import("./visual-yaml.js").VisualFile} VisualFile */

/** A menu; `write` tells it what is shown. */
export function createPublishMenu() {
  /** @type {Omit<VisualFile, "id"> | undefined} */
  let shown;
  let id = "";
  const text = createElement("pre", { class: "statement", tabindex: 0 });
  const copy = createButton("Copy", async () => {
    copy.textContent = (await copyText(text.textContent ?? "")) ? "Copied" : "Copying is not allowed";
  });
  const root = createElement(
    "details",
    { class: "menu" },
    createElement("summary", { class: "button" }, "Publish"),
    createElement(
      "div",
      { class: "menu-body" },
      createElement(
        "p",
        { class: "muted" },
        "As a file in the folder of visuals, this chart can be read by whoever knows its id, without a token.",
      ),
      text,
      copy,
    ),
  );
  const print = () => {
    if (!root.open || shown === undefined) return;
    const printed = printVisual({ id, ...shown });
    // A text that stays keeps what is selected in it.
    if (text.textContent === printed) return;
    text.textContent = printed;
    copy.textContent = "Copy";
  };
  root.addEventListener("toggle", () => {
    // The id is drawn anew each time, and is nobody's until the file is there.
    id = generateVisualId();
    print();
    copy.textContent = "Copy";
  });
  return {
    root,
    /** @param {Omit<VisualFile, "id">} next */
    write(next) {
      shown = next;
      print();
    },
  };
}
