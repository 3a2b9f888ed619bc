// A cron schedule in words, and when it runs next.
import { buildPost, isAborted, requestJson } from "../base/api.js";
import { createSearchForm, createShareBar } from "../base/controls.js";
import { createElement, createField, renderUntrusted, replaceChildren } from "../base/dom.js";
import { formatMinute, formatZoneName } from "../base/format.js";
import { createEmptyState, createFailureState, createLoadingState } from "../base/states.js";

/** @typedef {import("../base/address.js").StateOf<"checkins">} State */
/** @typedef {{ readonly description: string, readonly timezone: string, readonly next_occurrences: readonly string[] }} CronTest */

const selection = `description
timezone
next_occurrences`;

/** @param {import("../views.js").Shell<"checkins">} shell */
export function createCheckInsView({ go }) {
  /** @type {State | undefined} */
  let state;
  const text = (/** @type {string} */ placeholder) =>
    createElement("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder });
  const [schedule, zone] = [text("*/15 9-17 * * MON-FRI"), text("Etc/UTC")];
  const share = createShareBar();
  const shown = createElement("div");
  const form = createSearchForm(
    () => state !== undefined && go({ ...state, schedule: schedule.value, zone: zone.value }),
    createField("Schedule", schedule, "wide"),
    createField("Time zone", zone, "medium"),
  );
  const root = createElement("div", {}, form, createElement("div", { class: "bar" }, share.root), shown);
  return { root, show, focus: () => schedule.focus() };

  /** @param {State} now @param {AbortSignal} signal */
  async function show(now, signal) {
    state = now;
    schedule.value = now.schedule;
    zone.value = now.zone;
    share.root.hidden = now.schedule === "";
    if (now.schedule === "")
      return replaceChildren(
        shown,
        createEmptyState("No schedule", "Write one to see when a check-in is due."),
      );
    const body = { expression: now.schedule, ...(now.zone === "" ? {} : { timezone: now.zone }) };
    const request = buildPost("check_ins/test_cron", body);
    share.write(request, { field: "check_ins_test_cron", arguments: body, selection });
    replaceChildren(shown, createLoadingState("the schedule"));
    try {
      /** @type {CronTest} */
      const { description, timezone, next_occurrences } = await requestJson(request, signal);
      replaceChildren(
        shown,
        createElement("h2", {}, renderUntrusted(description)),
        createElement("p", { class: "muted" }, `The next runs, by ${timezone}:`),
        createElement(
          "ol",
          { class: "runs" },
          next_occurrences.map((time) =>
            createElement(
              "li",
              {},
              createElement("time", { datetime: time }, `${formatMinute(time)} ${formatZoneName()}`),
            ),
          ),
        ),
      );
    } catch (error) {
      if (!isAborted(error))
        replaceChildren(
          shown,
          createFailureState(error, () => void show(now, signal)),
        );
    }
  }
}
