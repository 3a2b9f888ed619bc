// POST /api/v2/logs/lines with `Accept: text/event-stream`: a live tail. What is to be followed is told here, by the
// checks of a page; `src/tailing` does it.
import * as z from "zod";
import { toInclusiveEnd } from "../../core/time.ts";
import type { Representation } from "../runtime/operation.ts";
import { type LinesRequest, selectLogs } from "./lines.ts";

export const tail: Representation<LinesRequest> = {
  name: "logs.tail",
  mediaType: "text/event-stream",
  scope: "tail",
  answer: z.string().meta({
    description:
      "A live tail: an event `line` for each line from `from` (by default now) to `to` (by default without end), once each, also when it comes late; `retry` while a source fails and `resumed` after it, `end` last. `data` is JSON, of `line` a log line. Send the last `id` as `Last-Event-ID` to go on. `pagination` is checked, and means nothing here.",
    examples: ['event: line\nid: MTc2ODQ3MTIwMDAwMA\ndata: {"id":"logs-app/1"}\n\n'],
  }),
  run(request, context) {
    const { store, sources, filter } = selectLogs(request, context);
    const { from, to } = request;
    return {
      follow: {
        store,
        sources,
        filter,
        from: from?.instant,
        to: to && toInclusiveEnd(to.instant),
      },
    };
  },
};
