// What a view shows while it has nothing to show: that it waits, that there is nothing, or why not.
import { createButton, createElement, renderUntrusted, replaceChildren } from "./dom.js";

/** @param {string} what */
export function createLoadingState(what) {
  return createElement(
    "div",
    { class: "state", role: "status" },
    createElement("span", { class: "spinner", "aria-hidden": "true" }),
    createElement("p", {}, `Loading ${what}…`),
  );
}

/**
 * A page that has nothing but this.
 * @param {string} title @param {string} advice
 */
export function createEmptyPage(title, advice) {
  return createElement(
    "div",
    { class: "state", role: "status" },
    createElement("h1", { class: "state-title" }, title),
    createElement("p", {}, advice),
  );
}

/** @param {string} title @param {string} advice @param {...HTMLElement} actions */
export function createEmptyState(title, advice, ...actions) {
  return createElement(
    "div",
    { class: "state", role: "status" },
    createElement("p", { class: "state-title" }, title),
    createElement("p", {}, advice),
    actions.length > 0 && createElement("div", { class: "state-actions" }, actions),
  );
}

/** What a person can do about a failure, by what it is. @type {Readonly<Record<string, string>>} */
const adviceBySlug = {
  result_too_large: "Choose a shorter range or a narrower filter.",
  log_query_too_complex: "Split the query.",
  invalid_field: "Choose another field.",
};

/**
 * @param {unknown} error
 * @param {() => void} [retry]
 */
export function createFailureState(error, retry) {
  const { status, slug, message, details } = describeError(error);
  const isMissingPart = slug === "not_supported_by_backend" && details.backend === null;
  if (isMissingPart)
    return createEmptyState(`${message}.`, "Nothing is configured for this part of the site.");
  const title = status === 0 ? "No connection" : status === 404 ? "Not found" : "This could not be answered";
  // The API does not tell which of both it is.
  const text = status === 404 ? "It is not there, or this token may not read it." : renderUntrusted(message);
  const issues = Array.isArray(details.issues) ? details.issues : [];
  return createElement(
    "div",
    { class: "state state-failed", role: "alert" },
    createElement("p", { class: "state-title" }, title),
    // It repeats the issues.
    createElement("p", {}, issues.length > 0 ? "The request is not valid:" : text),
    issues.length > 0 &&
      createElement(
        "ul",
        {},
        issues.map(({ path, message: issue }) =>
          createElement("li", {}, renderUntrusted(`${path || "body"}: ${issue}`)),
        ),
      ),
    adviceBySlug[slug] !== undefined && createElement("p", {}, adviceBySlug[slug]),
    createElement(
      "p",
      { class: "state-code" },
      status <= 0 ? "" : `Status ${status}${slug === "" ? "" : `, ${slug}`}`,
    ),
    retry !== undefined &&
      !isFinalFailure(status) &&
      createElement("div", { class: "state-actions" }, createButton("Try again", retry)),
  );
}

/**
 * Says in the place of a part beside the main one why it is not there.
 * @param {HTMLElement} root is replaced @param {string} what is not there, as a sentence
 * @param {unknown} error @param {() => void} retry
 */
export function showPartFailure(root, what, error, retry) {
  const { status, slug, message } = describeError(error);
  // What is wrong with the request is said by the main part.
  const isSaid = status === 422 && slug !== "result_too_large";
  root.hidden = isSaid;
  root.classList.remove("loading");
  if (isSaid) return replaceChildren(root);
  const failure = createElement(
    "p",
    { class: "muted", role: "status" },
    `${what} `,
    renderUntrusted(message),
    " ",
  );
  if (!isFinalFailure(status)) failure.append(createButton("Try again", retry));
  replaceChildren(root, failure);
}

/** Whether the same request gets the same answer. @param {number} status */
function isFinalFailure(status) {
  return status === 404 || status === 422;
}

/** @param {unknown} error @returns {{ status: number, slug: string, message: string, details: Readonly<Record<string, unknown>> }} */
function describeError(error) {
  if (error instanceof Error && "status" in error && "slug" in error && "details" in error) {
    return /** @type {import("./api.js").Failure} */ (error);
  }
  console.error(error);
  return {
    status: -1,
    slug: "",
    message: "This page has a defect: the console of the browser says more.",
    details: {},
  };
}
