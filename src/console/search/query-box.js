// The box for a query: it underlines what is wrong, and offers how the query may go on.
import { createElement, createField, generateId, renderUntrusted, replaceChildren } from "../base/dom.js";
import { attachSuggestions } from "./suggestions.js";

/**
 * A box for a query that underlines what is wrong in it. Behind the transparent text area lies a copy of its text, which
 * gives the box its height and carries the line; both have the same font and width.
 * @param {{
 *   readonly label: string, readonly placeholder: string, readonly submit: () => void,
 *   readonly suggest?: import("./suggestions.js").Suggest,
 * }} options
 */
export function createQueryBox({ label, placeholder, submit, suggest }) {
  const errorLine = createElement("p", { class: "query-error", id: generateId("error"), hidden: true });
  const copy = createElement("div", { class: "query-copy", "aria-hidden": "true" });
  const area = createElement("textarea", {
    rows: 1,
    placeholder,
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    "aria-describedby": errorLine.id,
  });
  const list = suggest === undefined ? undefined : attachSuggestions(area, suggest);
  area.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    list?.close();
    submit();
  });
  area.addEventListener("input", clear);
  const root = createField(label, area, "query");
  root.append(createElement("div", { class: "query-box" }, copy, area), errorLine);
  if (list !== undefined) root.append(list.root);

  /** What the page has written, of which the area has only its own line breaks. */
  let written = "";
  const read = () => restoreBreaks(area.value, written);

  function clear() {
    area.removeAttribute("aria-invalid");
    errorLine.hidden = true;
    replaceChildren(copy, `${area.value}\u200b`);
  }

  return {
    root,
    read,
    focus: () => area.focus(),
    /** @param {string} query */
    write(query) {
      if (read() !== query) area.value = query;
      written = query;
      clear();
    },
    /**
     * Whether the error is one of the query, and the box has the query still; if so, the error is shown here.
     * @param {unknown} error @param {string} query that was asked
     */
    explain(error, query) {
      const text = read();
      const place = text === query ? locateError(error, query) : undefined;
      if (place === undefined) return false;
      const { start, end, message } = place;
      // Where something is missing there may be no character to underline.
      const marked = text.slice(start, Math.max(end, start + 1)) || "\u00a0";
      replaceChildren(
        copy,
        text.slice(0, start),
        createElement("span", { class: "query-mark" }, marked),
        text.slice(Math.max(end, start + 1)),
        "\u200b",
      );
      area.setAttribute("aria-invalid", "true");
      replaceChildren(errorLine, renderUntrusted(message), ` (at character ${start + 1})`);
      errorLine.hidden = false;
      return true;
    },
  };
}

/**
 * The query that was written, where the area has it still: a browser makes one kind of line breaks of all, and a value with
 * another would no longer be found.
 * @param {string} shown in the area @param {string} written
 */
export function restoreBreaks(shown, written) {
  return written.replaceAll(/\r\n?/g, "\n") === shown ? written : shown;
}

/**
 * @param {unknown} error @param {string} query
 * @returns {{ readonly start: number, readonly end: number, readonly message: string } | undefined}
 */
function locateError(error, query) {
  if (!(error instanceof Error) || !("slug" in error) || !("details" in error)) return undefined;
  const { slug, message } = error;
  const details = /** @type {Readonly<Record<string, unknown>>} */ (error.details);
  if (slug === "invalid_log_query" && typeof details.start === "number" && typeof details.end === "number") {
    return { start: details.start, end: details.end, message };
  }
  if (slug === "legacy_log_query_syntax" && typeof details.field === "string") {
    const start = query.indexOf(details.field);
    return start === -1 ? undefined : { start, end: start + details.field.length, message };
  }
  return slug === "log_query_too_complex" ? { start: 0, end: query.length, message } : undefined;
}
