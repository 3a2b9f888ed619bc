// Log lines on real servers while indices are deleted, closed, rolled over, aliased, hidden or hard to search.
import { describe, expect, test } from "vitest";
import { BackendError, Refused } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { filebeat, printDocument } from "../../support/elastic/filebeat.ts";
import { never } from "../../support/signals.ts";
import { onServers, withoutDataStreams } from "../selected-servers.ts";
import { at, createSource, listIds, range, start, useLogCluster } from "./log-cluster.ts";

onServers((server) => {
  const logs = useLogCluster(server.url, "indices-*");
  const { read, buildQuery } = logs;

  describe("log store, changing and hidden indices", () => {
    const documents = (from: number, count: number): (readonly [string, string])[] =>
      Array.from({ length: count }, (_, n) => [
        `n${from + n}`,
        printDocument({
          time: at(from + n),
          message: `m ${n % 7}`,
          group: n % 2 ? "odd" : "even",
          json: "{}",
        }),
      ]);

    test("fails when an index is deleted during the read", async () => {
      await logs.cluster.createIndex("indices-gone-1", filebeat);
      await logs.cluster.createIndex("indices-gone-2", filebeat);
      await logs.cluster.write("indices-gone-1", documents(0, 1_000));
      await logs.cluster.write("indices-gone-2", documents(1_000, 1_000));
      const reading = (async () => {
        let seen = 0;
        for await (const batch of logs.cluster.store.lines(
          buildQuery(createSource("indices-gone-*"), "", { expectedLines: 100 }),
          never,
        )) {
          if (seen === 0) await logs.cluster.remove("indices-gone-2");
          seen += batch.length;
        }
        return seen;
      })();
      await expect(reading).rejects.toThrow(BackendError);
      expect(await read(createSource("indices-gone-*"))).toHaveLength(1_000);
    });

    test("refuses and reports a closed index, and reads it again once open", async () => {
      await logs.cluster.createIndex("indices-closed-1", filebeat);
      await logs.cluster.createIndex("indices-closed-2", filebeat);
      await logs.cluster.write("indices-closed-1", documents(0, 3));
      await logs.cluster.write("indices-closed-2", documents(10, 3));
      const both = createSource("indices-closed-*");
      expect(await read(both)).toHaveLength(6);
      await logs.cluster.request("POST", "/indices-closed-2/_close");
      await expect(read(both)).rejects.toThrow(Refused);
      await expect(read(createSource("indices-closed-2"))).rejects.toThrow(Refused);
      expect((await logs.cluster.inspect(both, never)).problems.join()).toMatch(/indices-closed-2: closed/);
      expect(await read(createSource("indices-closed-*,-indices-closed-2"))).toHaveLength(3);
      await logs.cluster.request("POST", "/indices-closed-2/_open?wait_for_active_shards=1");
      expect(await read(both)).toHaveLength(6);
      expect(await logs.cluster.inspect(both, never)).toMatchObject({ indices: 2, problems: [] });
    });

    test("refuses and reports parts of data streams", async () => {
      await expect(read(createSource("logs-*::failures"))).rejects.toThrow("a part of a data stream");
      const report = await logs.cluster.inspect(createSource("logs-*::failures"), never);
      expect(report.problems.join()).toMatch(/::failures/);
    });

    test("applies the filter and routing of an alias", async () => {
      await logs.cluster.createIndex("indices-aliased", {
        ...filebeat,
        settings: { number_of_shards: 3, number_of_replicas: 0 },
      });
      await logs.cluster.write("indices-aliased", documents(0, 60));
      const actions = [
        {
          add: {
            index: "indices-aliased",
            alias: "indices-odd",
            filter: { term: { "event.dataset": "odd" } },
          },
        },
        { add: { index: "indices-aliased", alias: "indices-routed", search_routing: "7" } },
      ];
      await logs.cluster.request("POST", "/_aliases", JSON.stringify({ actions }));
      expect(listIds(await read(createSource("indices-odd")))).toEqual(
        documents(0, 60)
          .map(([id]) => id)
          .filter((_, n) => n % 2 === 1),
      );
      expect(await read(createSource("indices-odd"), "group=even")).toEqual([]);
      const shard = (await logs.cluster.request(
        "POST",
        "/indices-aliased/_search?routing=7&size=100&q=*",
      )) as {
        hits: { hits: { _id: string }[] };
      };
      const routed = await read(createSource("indices-routed"));
      expect(listIds(routed).toSorted()).toEqual(shard.hits.hits.map(({ _id }) => _id).toSorted());
    });

    test("loses and repeats no line over a rollover between two pages", async () => {
      await logs.cluster.createIndex("indices-roll-000001", {
        ...filebeat,
        aliases: { "indices-rolled": { is_write_index: true } },
      });
      await logs.cluster.write("indices-rolled", documents(0, 150));
      const first = await read(createSource("indices-rolled"), "", {
        range: { ...range, to: fromMillis(start + 99) },
      });
      await logs.cluster.request(
        "POST",
        "/indices-rolled/_rollover",
        JSON.stringify({ mappings: filebeat.mappings, settings: filebeat.settings }),
      );
      await logs.cluster.write("indices-rolled", documents(150, 150));
      const rest = await read(createSource("indices-rolled"), "", {
        range: { ...range, from: fromMillis(start + 100) },
      });
      expect(listIds([...first, ...rest])).toEqual(documents(0, 300).map(([id]) => id));
    });

    async function rollStream(): Promise<void> {
      const template = {
        index_patterns: ["indices-stream*"],
        data_stream: {},
        priority: 901,
        template: { mappings: filebeat.mappings },
      };
      await logs.cluster.request("PUT", "/_index_template/indices-stream", JSON.stringify(template));
      try {
        await logs.cluster.request("PUT", "/_data_stream/indices-stream");
        await logs.cluster.write("indices-stream", documents(0, 150));
        const first = await read(createSource("indices-stream"), "", {
          range: { ...range, to: fromMillis(start + 99) },
        });
        await logs.cluster.request("POST", "/indices-stream/_rollover");
        await logs.cluster.write("indices-stream", documents(150, 150));
        const rest = await read(createSource("indices-str*"), "", {
          range: { ...range, from: fromMillis(start + 100) },
        });
        expect(listIds([...first, ...rest])).toEqual(documents(0, 300).map(([id]) => id));
        await logs.cluster.request("DELETE", "/_data_stream/indices-stream");
      } finally {
        await logs.cluster.request("DELETE", "/_index_template/indices-stream");
      }
    }
    test("loses and repeats no line over a rollover of a data stream", async () => {
      const lack = withoutDataStreams[server.name];
      if (lack === undefined) await rollStream();
      else await expect(rollStream()).rejects.toThrow(lack.failure);
    });

    test("names the fields to map when a query exceeds the budget", async () => {
      const properties = {
        "@timestamp": { type: "date" },
        blind: { type: "keyword", index: false },
        off: { type: "object", enabled: false },
      };
      await logs.cluster.createIndex("indices-blind", { mappings: { dynamic: false, properties } });
      await logs.cluster.write(
        "indices-blind",
        Array.from({ length: 50 }, (_, n) => [
          `${n}`,
          `{"@timestamp":"${at(n)}","blind":"${n}","off":{"k":${n}}}`,
        ]),
      );
      const refused = read(createSource("indices-blind"), "blind=7 OR off.k=8", { documentLimit: 40 });
      await expect(refused).rejects.toMatchObject({
        slug: "result_too_large",
        message: /map blind, off\.k as keyword/,
      });
      expect(listIds(await read(createSource("indices-blind"), "blind=7 OR off.k=8"))).toEqual(["7", "8"]);
      const { limitations } = await logs.cluster.inspect(createSource("indices-blind"), never);
      expect(limitations.join("\n")).toMatch(/blind, off cannot be searched/);
    });

    test("skips documents without a time, and check counts them", async () => {
      await logs.cluster.createIndex("indices-untimed", filebeat);
      await logs.cluster.write("indices-untimed", [
        ["a", '{"message":"lost"}'],
        ["b", printDocument({ time: at(1), json: "{}" })],
      ]);
      expect(listIds(await read(createSource("indices-untimed")))).toEqual(["b"]);
      expect((await logs.cluster.inspect(createSource("indices-untimed"), never)).limitations.join()).toMatch(
        /1 documents? ha.* no @timestamp/,
      );
    });
  });
});
