// Log lines as Filebeat writes them, in the layout `ecs`.
import type { LoadedLine } from "../../log-query/script.ts";

/** Filebeat's index template, reduced to the fields that lines are read from; everything else is mapped dynamically. */
export const filebeat = buildTemplate("date", 2);

export function buildTemplate(time: "date" | "date_nanos", shards: number) {
  return {
    settings: { number_of_shards: shards, number_of_replicas: 0 },
    mappings: {
      properties: {
        "@timestamp": { type: time },
        ecs: { properties: { version: { type: "keyword", ignore_above: 1024 } } },
        log: { properties: { level: { type: "keyword", ignore_above: 1024 } } },
        host: { properties: { name: { type: "keyword", ignore_above: 1024 } } },
        event: { properties: { dataset: { type: "keyword", ignore_above: 1024 } } },
        service: { properties: { name: { type: "keyword", ignore_above: 1024 } } },
        message: { type: "text" },
      },
    },
  };
}

/** The document's text; `line.time` must be there. */
export function printDocument(line: Omit<LoadedLine, "id">): string {
  const own: Record<string, unknown> = {
    "@timestamp": line.time,
    ecs: { version: "8.0.0" },
    ...(line.message === undefined ? {} : { message: line.message }),
    ...(line.severity === undefined ? {} : { log: { level: line.severity } }),
    ...(line.hostname === undefined ? {} : { host: { name: line.hostname } }),
    ...(line.group === undefined ? {} : { event: { dataset: line.group } }),
  };
  // The body is spliced in as text, so that numbers keep their spelling.
  const body = line.json.trim().slice(1, -1).trim();
  return `${JSON.stringify(own).slice(0, -1)}${body === "" ? "" : `,${body}`}}`;
}
