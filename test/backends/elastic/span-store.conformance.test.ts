// The conformance suite of span stores on real servers, with spans as each shipper writes them, on natural pairs of server
// and layout. Where the service is a keyword, all sites share their indices and are separated by tenant filters.
import { type CountingSubject, countingSuite } from "../../conformance/span-aggregation.ts";
import { spanStoreSuite } from "../../conformance/spans.ts";
import type { ModelPart } from "../../conformance/trace-fixture.ts";
import { apm, apm7 } from "../../support/elastic/span-shippers/apm.ts";
import { dataPrepper, dataPrepperLegacy } from "../../support/elastic/span-shippers/data-prepper.ts";
import { jaeger, jaegerFields } from "../../support/elastic/span-shippers/jaeger.ts";
import { otel, otelLogsdb, otelOlder } from "../../support/elastic/span-shippers/otel.ts";
import type { SpanShipper } from "../../support/elastic/span-shippers/shipper.ts";
import { ss4o, ss4oBare } from "../../support/elastic/span-shippers/ss4o.ts";
import { openCluster } from "../../support/elastic/test-index.ts";
import { chosen, onServers, type ServerName } from "../selected-servers.ts";
import { createSpanSubject } from "./store-subjects.ts";

type Lacks = Readonly<Partial<Record<ModelPart, string>>>;

interface Pair {
  readonly shipper: SpanShipper;
  readonly servers: readonly ServerName[];
  readonly lacks: Lacks;
  /** What the layout cannot aggregate at the source. */
  readonly reads?: CountingSubject["reads"];
  /** The field of the tenant filter; without one each site has its own indices. */
  readonly service: string | undefined;
}

const uncompressed = { count: "only Elastic APM compresses spans" } as const;
const apmLacks: Lacks = {
  nanoseconds: "times are microseconds",
  state: "there is no field for it",
  message: "an outcome has no message",
  linkAttributes: "links are two ids",
  linkState: "links are two ids",
  events: "only exceptions are kept",
  booleans: "labels are texts",
  unset: "an outcome that is not known is stored as a success",
};
const jaegerLacks: Lacks = {
  ...uncompressed,
  nanoseconds: "times are microseconds",
  linkAttributes: "references are two ids",
  linkState: "references are two ids",
};

const noLength = "spans have two ends and no length, and ends cannot be subtracted without scripts";
const nestedTags = "tags are nested pairs, which no aggregation puts together by document";
/** A missing tag may be one that is too long, which OpenSearch does not list. */
const maybeTooLong = { request: "no status is surely missing", deploy: "no status is surely missing" };
const text = { event: "statements are analysed texts" };

const pairs: readonly Pair[] = [
  {
    shipper: otel,
    servers: ["es8", "es9"],
    lacks: uncompressed,
    service: "resource.attributes.service.name",
  },
  {
    shipper: otelLogsdb,
    servers: ["es8", "es9"],
    lacks: { ...uncompressed, submillis: "a date is printed by its milliseconds" },
    service: "resource.attributes.service.name",
  },
  { shipper: apm, servers: ["es8", "es9"], lacks: apmLacks, reads: text, service: "service.name" },
  { shipper: apm7, servers: ["es7"], lacks: apmLacks, reads: text, service: "service.name" },
  { shipper: dataPrepper, servers: ["os2", "os3"], lacks: uncompressed, service: "serviceName" },
  { shipper: dataPrepperLegacy, servers: ["os2", "os3"], lacks: uncompressed, service: "serviceName" },
  {
    shipper: ss4o,
    servers: ["os2", "os3"],
    lacks: uncompressed,
    reads: { request: noLength, event: noLength, deploy: noLength },
    service: undefined,
  },
  {
    shipper: ss4oBare,
    servers: ["os2", "os3"],
    lacks: uncompressed,
    reads: { request: noLength, event: noLength, deploy: noLength },
    service: "resource.service.name.keyword",
  },
  {
    shipper: jaeger,
    servers: ["es7", "es8", "es9", "os2", "os3"],
    lacks: jaegerLacks,
    reads: { request: nestedTags, event: nestedTags, deploy: nestedTags, nPlusOne: nestedTags },
    service: "process.serviceName",
  },
  { shipper: jaegerFields, servers: ["es8"], lacks: jaegerLacks, service: "process.serviceName" },
  {
    shipper: jaegerFields,
    servers: ["os2"],
    lacks: jaegerLacks,
    reads: maybeTooLong,
    service: "process.serviceName",
  },
  {
    shipper: otelOlder,
    servers: ["es8"],
    lacks: uncompressed,
    service: "resource.attributes.service.name",
  },
];

onServers((server) => {
  pairs.forEach((pair, turn) => {
    if (!chosen(pair.servers, turn).includes(server.name)) return;
    const subject = createSpanSubject(server.name, pair, () => openCluster(server.url));
    spanStoreSuite(subject, 1);
    countingSuite(subject);
  });
});
