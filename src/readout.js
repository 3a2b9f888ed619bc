#!/usr/bin/env -S node --max-semi-space-size=12 --v8-pool-size=2
// Starts `main.ts`. It is JavaScript because the compile cache must be enabled before Node reads the first TypeScript
// file, which saves 20 MB, and because it can then tell that Node is too old.
if (Number.parseInt(process.versions.node, 10) < 24) {
  process.stderr.write(`readout needs Node 24 or later, and this is ${process.version}\n`);
  process.exit(2);
}
await import("./compile-cache.js");
await import("./main.ts");
