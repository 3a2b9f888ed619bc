#!/usr/bin/env -S node --max-semi-space-size=16 --v8-pool-size=2
// The way into `main.ts`. In JavaScript, because the cache has to be there before node meets the first line of
// TypeScript: `node src/main.ts` does the same with 20 MB more.
import "./cache.js";

await import("./main.ts");
