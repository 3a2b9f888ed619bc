import { createMemoryLogs } from "#resolvers/memory/logs.ts";
import { fromMillis } from "#src/time.ts";
import { logStoreSuite } from "./logs.ts";

logStoreSuite({
  name: "memory",
  excuses: {},
  start: async () => {
    const store = createMemoryLogs();
    return {
      store,
      sources: {
        app: { id: "app", index: "app", profile: "auto" },
        nginx: { id: "nginx", index: "nginx", profile: "auto" },
        twin: { id: "twin", index: "app", profile: "auto" },
      },
      seed: async (index, lines) => {
        store.forget(index, fromMillis(Number.MAX_SAFE_INTEGER));
        store.add(index, lines);
      },
      stop: async () => {},
    };
  },
});
