// What the generated data tell of: a shop and its blog, what they are asked for, and when. Log lines, traces and metrics
// are made from these same lists and moments, so that they belong together.
import { fromMillis, type Instant, second } from "../../../src/core/time.ts";
import { createRandom, generateHex, pick } from "./seeded-random.ts";

export interface DemoSite {
  readonly name: string;
  readonly hosts: number;
  readonly actions: readonly [DemoAction, ...DemoAction[]];
  /** Chance that a request begins in a second. */
  readonly pace: number;
}
interface DemoAction {
  /** As traces and metrics name it. */
  readonly name: string;
  readonly method: "GET" | "POST";
  readonly path: string;
}

export const demoSites: readonly [DemoSite, ...DemoSite[]] = [
  {
    name: "shop",
    hosts: 3,
    pace: 0.25,
    actions: [
      { name: "CartController#show", method: "GET", path: "/cart" },
      { name: "CheckoutController#create", method: "POST", path: "/checkout" },
      { name: "ProductsController#show", method: "GET", path: "/products/42" },
      { name: "SearchController#index", method: "GET", path: "/search?q=red%20shoes" },
      { name: "AccountsController#show", method: "GET", path: "/account" },
    ],
  },
  {
    name: "blog",
    hosts: 2,
    pace: 0.1,
    actions: [
      { name: "PagesController#home", method: "GET", path: "/" },
      { name: "PostsController#show", method: "GET", path: "/posts/hello-world" },
      { name: "FeedsController#index", method: "GET", path: "/feed.xml" },
      { name: "TagsController#show", method: "GET", path: "/tags/größe" },
    ],
  },
];

/** A request that comes to a site from outside, and begins a trace. */
export interface DemoRequest {
  readonly action: DemoAction;
  readonly traceId: string;
  /** Of the trace's root. */
  readonly spanId: string;
  readonly start: Instant;
  readonly failed: boolean;
}

/** The request that begins in a second (counted from 1970), if one does. */
export function generateRequest(seed: number, site: DemoSite, slot: number): DemoRequest | undefined {
  const random = createRandom(`${seed} ${site.name} request ${slot}`);
  if (random() >= site.pace) return undefined;
  const action = pick(random, site.actions);
  return {
    action,
    traceId: generateHex(random, 32),
    spanId: generateHex(random, 16),
    start: (fromMillis(slot * second) + BigInt(Math.floor(random() * 1e9))) as Instant,
    failed: random() < (action.method === "POST" ? 0.15 : 0.03),
  };
}

/** A new revision is deployed every half hour. */
export function deriveRevision(site: string, slot: number): string {
  return generateHex(createRandom(`${site} deploy ${Math.floor(slot / 1_800)}`), 12);
}
