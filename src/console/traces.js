// The listing of traces: requests and errors, as filters choose them.
import { boundsOf, printAddress } from "./address.js";
import { ask, post } from "./api.js";
import { queryBox, rangePicker, searchForm, shareBar } from "./controls.js";
import { button, element, field, foreign, replace, select, unseen } from "./dom.js";
import { startFeed } from "./feed.js";
import { counted, duration, longTime, shortTime, stretch } from "./format.js";
import { entriesOf, scalarText } from "./json.js";
import { narrow, printTagTerm } from "./query.js";
import { empty } from "./states.js";

/** @typedef {import("./address.js").StateOf<"traces">} State */
/**
 * @typedef {{
 *   readonly trace_id: string, readonly span_id: string, readonly site_id: string, readonly namespace: string,
 *   readonly action_name: string, readonly revision: string, readonly time: string, readonly duration: number,
 *   readonly tags: Readonly<Record<string, unknown>>, readonly has_npo: boolean,
 * }} Summary
 */

const perPage = 50;
const selection = `time
duration
namespace
action_name
has_npo
tags
trace_id
span_id`;

/** @param {import("./app.js").Shell<"traces">} shell */
export function tracesView({ go }) {
  /** @type {State | undefined} */
  let state;
  const change = (/** @type {Partial<State>} */ part) => {
    if (state !== undefined) go({ ...state, ...typed(), ...part });
  };
  const kind = select(
    [
      ["performance", "Requests"],
      ["errors", "Errors"],
    ],
    (value) => change({ kind: value === "errors" ? "errors" : "performance" }),
  );
  const query = queryBox({
    label: "Query",
    placeholder: "tag.plan=pro revision:6a1a action_name:Checkout",
    submit: () => change({}),
  });
  const namespace = element("input", { type: "text", autocomplete: "off", placeholder: "any" });
  const action = element("input", { type: "text", autocomplete: "off", placeholder: "any" });
  const least = element("input", { type: "number", min: 0, max: 999_999_999, step: "any", placeholder: "0" });
  const range = rangePicker((value) => change({ range: value }));
  const order = select(
    [
      ["newest", "Newest first"],
      ["slowest", "Slowest first"],
    ],
    (value) => change({ order: value === "slowest" ? "slowest" : "newest" }),
  );
  const share = shareBar();
  const told = element("p", { class: "told", role: "status" });
  const body = element("tbody");
  const table = element(
    "table",
    { class: "grid traces" },
    element("caption", { class: "unseen" }, "Traces"),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        ["Ended", "Duration", "Action", "Tags"].map((name) => element("th", { scope: "col" }, name)),
      ),
    ),
    body,
  );
  const foot = element("div");
  const form = searchForm(
    () => change({}),
    query.root,
    field("Kind", kind),
    field("Namespace", namespace, "short"),
    field("Action", action, "medium"),
    field("At least, ms", least, "short"),
    range.root,
    field("Order", order),
  );
  const root = element("div", {}, form, element("div", { class: "bar" }, told, share.root), table, foot);

  /** What stands in the boxes, searched for or not. */
  function typed() {
    const min = Math.max(0, Number(least.value));
    return { query: query.read(), namespace: namespace.value, action: action.value, min };
  }

  /** @param {State} now @param {AbortSignal} signal */
  function show(now, signal) {
    state = now;
    kind.value = now.kind;
    query.write(now.query);
    namespace.value = now.namespace;
    action.value = now.action;
    least.value = now.min === 0 ? "" : String(now.min);
    range.write(now.range);
    order.value = now.order;
    replace(body);
    replace(told);
    table.hidden = true;
    const bounds = boundsOf(now.range, Date.now());
    const pageOf = (/** @type {Summary | undefined} */ last) => ({
      site_ids: [now.site],
      query: now.query,
      ...(now.namespace === "" ? {} : { namespace: now.namespace }),
      ...(now.action === "" ? {} : { action_name: now.action }),
      ...(now.min === 0 ? {} : { duration: now.min }),
      ...bounds,
      pagination: {
        per_page: perPage,
        order: "DESC",
        cursor: now.order === "newest" ? { time: last?.time ?? null } : { duration: last?.duration ?? null },
      },
    });
    const path = `tracing/traces/${now.kind}`;
    share.write(post(path, pageOf(undefined)), {
      field: `tracing_traces_${now.kind}`,
      arguments: pageOf(undefined),
      selection,
    });
    let longest = 0;
    replace(
      foot,
      startFeed({
        what: "traces",
        perPage,
        signal,
        ask: (/** @type {Summary | undefined} */ last) => ask(post(path, pageOf(last)), signal),
        show: (/** @type {readonly Summary[]} */ rows) => {
          table.hidden = false;
          longest = Math.max(longest, ...rows.map((row) => row.duration));
          body.append(...rows.map(rowOf));
          body.style.setProperty("--longest", String(Math.max(longest, 0.001)));
          const way = now.order === "newest" ? "newest first" : "slowest first";
          const what = now.kind === "errors" ? "trace with errors" : "trace";
          const many = now.kind === "errors" ? "traces with errors" : "traces";
          replace(
            told,
            `${counted(body.childElementCount, what, many)}, ${way}, ${stretch(bounds.from, bounds.to)}`,
          );
        },
        nothing: () =>
          empty(
            now.kind === "errors" ? "No errors" : "No traces",
            "Nothing in this range passes the filters.",
            button("Clear the filters", () => change({ query: "", namespace: "", action: "", min: 0 })),
          ),
        failed: query.explain,
      }),
    );

    /** @param {Summary} row */
    function rowOf(row) {
      const href = printAddress("trace", { site: row.site_id, id: row.trace_id, span: row.span_id });
      const bar = element("span", { class: "share-of" });
      bar.style.setProperty("--length", String(row.duration));
      return element(
        "tr",
        { "data-failed": now.kind === "errors" },
        element(
          "td",
          {},
          element("time", { datetime: row.time, title: longTime(row.time) }, shortTime(row.time)),
        ),
        element("td", { class: "duration" }, element("span", {}, duration(row.duration)), bar),
        element(
          "td",
          { class: "action" },
          element(
            "div",
            {},
            element("a", { href }, foreign(row.action_name)),
            element("span", { class: "muted" }, foreign(row.namespace)),
            row.has_npo &&
              element("span", { class: "badge warn", title: "Equal queries, one by one" }, "N+1"),
          ),
        ),
        element(
          "td",
          { class: "tags" },
          (entriesOf(row.tags) ?? []).map(([name, value]) => tagOf(name, value)),
        ),
      );
    }

    /** @param {string} name @param {unknown} value */
    function tagOf(name, value) {
      const text = scalarText(value);
      const term = text === undefined ? undefined : printTagTerm(name, "=", text);
      const shown = foreign(`${name}: ${text ?? JSON.stringify(value)}`);
      if (term === undefined) return element("span", { class: "tag" }, shown);
      const only = element("button", { type: "button", class: "tag" }, unseen("Only "), shown);
      only.addEventListener("click", () => change({ query: narrow(now.query, term) }));
      return only;
    }
  }

  return { root, show, focus: query.focus };
}
