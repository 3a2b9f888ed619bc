// What stands in the place of a view until a token is given: identity providers to sign in at, and a field for a token.
import { createButton, createElement, createField, replaceChildren } from "../base/dom.js";
import { beginSignIn, readHost, requestSettings } from "./sign-in.js";

/**
 * @param {string | undefined} reason why the token is asked for again
 * @param {{ readonly submit: (token: string) => void, readonly refuse: (reason: string) => void }} done `refuse` is told why a provider
 *   could not be reached
 */
export function createTokenForm(reason, { submit, refuse }) {
  const input = createElement("input", {
    type: "password",
    // What a header can hold.
    pattern: "\\s*[!-~]+\\s*",
    title: "letters, digits and signs, without spaces",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-help",
  });
  const root = createElement(
    "form",
    { class: "token" },
    createElement("h1", {}, "Logs, traces and metrics"),
    createElement("p", {}, "Readout answers with what your token may see."),
    reason !== undefined && createElement("p", { class: "refused", role: "alert" }, reason),
    createProviders(refuse),
    createField("Token", input),
    createElement("button", { type: "submit", class: "primary" }, "Show the data"),
    createElement(
      "p",
      { class: "muted", id: "token-help" },
      "It is kept until this tab is closed, and goes to this server only. ",
      createElement("a", { href: "/docs" }, "The API without the console"),
    ),
  );
  root.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(input.value.trim());
  });
  return { root, focus: () => input.focus() };
}

/** The identity providers to choose from; empty where there are none. @param {(reason: string) => void} refused */
function createProviders(refused) {
  const made = createElement("div", { class: "providers" });
  void showProviders(made, refused);
  return made;
}

/** @param {HTMLElement} made @param {(reason: string) => void} refused */
async function showProviders(made, refused) {
  // Without its settings the page is as without providers.
  const settings = await requestSettings().catch(() => undefined);
  if (settings?.redirectUri === undefined) return;
  const { origin } = new URL(settings.redirectUri);
  if (origin !== location.origin) {
    // What lies in this origin's storage is not there when people come back to another.
    const there = createElement("a", { href: `${origin}/${location.hash}` }, `Sign in at ${origin}`);
    replaceChildren(made, createElement("p", {}, there));
    return;
  }
  replaceChildren(
    made,
    settings.providers.map(({ issuer }) =>
      createButton(
        `Sign in with ${readHost(issuer)}`,
        async () => {
          const reason = await beginSignIn(issuer);
          if (reason !== undefined) refused(reason);
        },
        { class: "primary" },
      ),
    ),
  );
}
