// Exports log lines: what is loaded to the clipboard, or all of the range as a file that the API writes.
import { isAborted, requestBlob } from "../base/api.js";
import { copyText } from "../base/controls.js";
import { createButton, createElement } from "../base/dom.js";

/** @typedef {import("./log-line.js").Line} Line */
/**
 * What there is to export: the lines in the list, and the request for all of them.
 * @typedef {{ readonly lines: () => readonly Line[], readonly request: () => import("../base/share.js").Request }} Source
 */

/** @type {Readonly<Record<string, { readonly type: string, readonly ending: string }>>} */
const formats = {
  CSV: { type: "text/csv", ending: "csv" },
  NDJSON: { type: "application/x-ndjson", ending: "ndjson" },
};

/** A menu; `write` tells it what there is. */
export function createExportMenu() {
  /** @type {Source | undefined} */
  let source;
  const statusLine = createElement("p", { class: "muted", role: "status" });
  const copy = createButton("Copy the loaded lines", async () => {
    const lines = source?.lines() ?? [];
    statusLine.textContent = (await copyText(printLines(lines)))
      ? `${lines.length} copied`
      : "Copying is not allowed";
  });
  const files = Object.entries(formats).map(([name, { type, ending }]) =>
    createButton(`All lines as ${name}`, async () => {
      if (source === undefined) return;
      statusLine.textContent = "Reading…";
      try {
        const blob = await requestBlob(source.request(), type, new AbortController().signal);
        saveFile(blob, `lines.${ending}`);
        statusLine.textContent = "";
      } catch (error) {
        if (!isAborted(error))
          statusLine.textContent = error instanceof Error ? error.message : String(error);
      }
    }),
  );
  const root = createElement(
    "details",
    { class: "menu" },
    createElement("summary", { class: "button" }, "Export"),
    createElement("div", { class: "menu-body" }, copy, files, statusLine),
  );
  return {
    root,
    /** @param {Source} next */
    write(next) {
      source = next;
      statusLine.textContent = "";
    },
  };
}

/**
 * Lines as text, one a row: time, severity, source and message. Line ends inside a message are spelt out.
 * @param {readonly Line[]} lines
 */
export function printLines(lines) {
  const clean = (/** @type {string} */ text) =>
    text.replaceAll("\n", "\\n").replaceAll("\r", "\\r").replaceAll("\t", "\\t");
  return lines
    .map(({ timestamp, severity, source_id, message }) =>
      [timestamp, severity, clean(source_id), clean(message)].join("\t"),
    )
    .join("\n");
}

/** @param {Blob} blob @param {string} name */
function saveFile(blob, name) {
  const href = URL.createObjectURL(blob);
  createElement("a", { href, download: name }).click();
  // The browser reads it after this.
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
