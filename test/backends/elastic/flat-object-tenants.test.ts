// Tenants that only a key of a `flat_object` tells apart, as in the templates of OpenSearch's ss4o, on real servers.
import { beforeAll, expect, test } from "vitest";
import { Refused } from "#src/core/errors.ts";
import { ss4oLogsFlat } from "../../support/elastic/log-shippers.ts";
import { ss4o } from "../../support/elastic/span-shippers/ss4o.ts";
import { never } from "../../support/signals.ts";
import { named, onServers } from "../selected-servers.ts";
import { at, createSource, listIds, useLogCluster } from "./log-cluster.ts";
import { id, make, useSpanCluster } from "./span-cluster.ts";

/** Services whose names are near that of the tenant, and values elsewhere that are equal to it. */
const resources = {
  mine: { "service.name": "shop" },
  nested: { service: { name: "shop" } },
  case: { "service.name": "Shop" },
  longer: { "service.name": "shop-web" },
  shorter: { "service.name": "sho" },
  equals: { "service.name": "shop=web" },
  deeper: { "service.name.alias": "shop" },
  forged: { service: "name=shop" },
  key: { "service.name=shop": "x" },
  elsewhere: { "host.name": "shop", "service.name": "blog" },
  none: {},
};
const mine = ["mine", "nested"];

onServers(
  (server) => {
    const logs = useLogCluster(server.url, "flat-*");
    const spans = useSpanCluster(server.url, "flatspans");
    const index = ss4oLogsFlat.index("flat");

    beforeAll(async () => {
      await logs.cluster.createIndex(index, ss4oLogsFlat.definition);
      const documents = Object.entries(resources).map(([name, resource]) => {
        const attributes = { "service.name": "shop" };
        const own = { "@timestamp": at(0), body: name, resource, attributes };
        return [name, JSON.stringify(own)] as const;
      });
      await logs.cluster.write(index, documents);
    });

    test("a tenant filter on a key of a flat_object finds the lines of the tenant alone", async () => {
      const source = createSource(index, { layout: "ss4o", tenantFilter: 'resource.service.name="shop"' });
      expect(listIds(await logs.read(source)).sort()).toEqual(mine);
      const others = createSource(index, { layout: "ss4o", tenantFilter: 'resource.service.name!="shop"' });
      expect(listIds(await logs.read(others)).sort()).toEqual(
        Object.keys(resources)
          .filter((name) => !mine.includes(name))
          .sort(),
      );
      const report = await logs.cluster.inspect(source, never);
      expect(report).toMatchObject({ problems: [], newest: expect.anything() });
    });

    test("a tenant filter whose name or value has an equals sign is refused", async () => {
      for (const where of ['resource.service.name="shop=web"', 'resource.service.name\\=shop="x"']) {
        const source = createSource(index, { layout: "ss4o", tenantFilter: where });
        await expect(logs.read(source), where).rejects.toThrow(Refused);
        const { tenantFilterFault } = await logs.cluster.inspect(source, never);
        expect(tenantFilterFault, where).toMatch(
          /inside a flat_object, where a name or value with = is not exact/,
        );
      }
    });

    test("a tenant filter on a key of a flat_object finds the spans of the tenant alone", async () => {
      await spans.empty(ss4o);
      const names = ["shop", "Shop", "shop-web", "sho", "shop=web"];
      await spans.write(
        ss4o,
        names.map((service, number) => make({ id: id(0xb0 + number), service, name: service })),
      );
      const found = await spans.scan(spans.source(ss4o, { tenantFilter: 'resource.service.name="shop"' }));
      expect(found.map(({ service_name }) => service_name)).toEqual(["shop"]);
      expect(await spans.scan(spans.source(ss4o))).toHaveLength(names.length);
    });
  },
  named().filter(({ product }) => product === "opensearch"),
);
