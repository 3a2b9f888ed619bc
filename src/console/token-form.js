// What stands in the place of a view until a token is given.
import { createElement, createField } from "./base/dom.js";

/**
 * @param {HTMLElement} others other ways in
 * @param {string | undefined} told why the token is asked for again
 * @param {(token: string) => void} submitted
 */
export function createTokenForm(others, told, submitted) {
  const input = createElement("input", {
    type: "password",
    // What a header can hold.
    pattern: "\\s*[!-~]+\\s*",
    title: "letters, digits and signs, without spaces",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-told",
  });
  const root = createElement(
    "form",
    { class: "token" },
    createElement("h1", {}, "Logs, traces and metrics"),
    createElement("p", {}, "Readout answers with what your token may see."),
    told !== undefined && createElement("p", { class: "refused", role: "alert" }, told),
    others,
    createField("Token", input),
    createElement("button", { type: "submit", class: "primary" }, "Show the data"),
    createElement(
      "p",
      { class: "muted", id: "token-told" },
      "It is kept until this tab is closed, and goes to this server only. ",
      createElement("a", { href: "/docs" }, "The API without the console"),
    ),
  );
  root.addEventListener("submit", (event) => {
    event.preventDefault();
    submitted(input.value.trim());
  });
  return { root, focus: () => input.focus() };
}
