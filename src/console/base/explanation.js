// What a request means and what it asks of the sources, as the API explains it.
import { requestJson } from "./api.js";
import { createElement, replaceChildren } from "./dom.js";
import { createFailureState, createLoadingState } from "./states.js";
import { createTree } from "./tree.js";

/** Opens a dialog with the explanation of a request. @param {import("./share.js").Request} request */
export async function showExplanation(request) {
  const shown = createElement("div", {}, createLoadingState("the explanation"));
  const dialog = createElement(
    "dialog",
    { class: "explanation", "aria-label": "Explanation" },
    createElement(
      "form",
      { method: "dialog" },
      createElement("h2", {}, "Explanation"),
      createElement("button", {}, "Close"),
    ),
    shown,
  );
  const closed = new AbortController();
  dialog.addEventListener("close", () => {
    closed.abort();
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  try {
    const answer = await requestJson({ ...request, path: `${request.path}?explain=true` }, closed.signal);
    replaceChildren(
      shown,
      createTree(answer, () => undefined),
    );
  } catch (error) {
    if (!closed.signal.aborted) replaceChildren(shown, createFailureState(error));
  }
}
