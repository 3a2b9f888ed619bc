#!/usr/bin/env -S node --max-semi-space-size=12 --v8-pool-size=2
// The way into `main.ts`. In JavaScript, because the cache has to be there before node meets the first line of
// TypeScript: `node src/main.ts` does the same with 20 MB more. And because a node that is too old can then be told so.
if (Number.parseInt(process.versions.node, 10) < 24) {
  process.stderr.write(`readout needs Node 24 or later, and this is ${process.version}\n`);
  process.exit(2);
}
await import("./compile-cache.js");
await import("./main.ts");
