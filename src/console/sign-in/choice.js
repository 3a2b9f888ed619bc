// The identity providers that a person may choose, above the form for a token.
import { createButton, createElement, replaceChildren } from "../base/dom.js";
import { beginSignIn, readHost, requestSettings } from "./sign-in.js";

/** An element that is empty where there is none to choose. @param {(told: string) => void} refused */
export function createSignInChoice(refused) {
  const made = createElement("div", { class: "providers" });
  void fill(made, refused);
  return made;
}

/** @param {HTMLElement} made @param {(told: string) => void} refused */
async function fill(made, refused) {
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
          const told = await beginSignIn(issuer);
          if (told !== undefined) refused(told);
        },
        { class: "primary" },
      ),
    ),
  );
}
