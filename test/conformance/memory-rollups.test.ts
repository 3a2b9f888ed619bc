import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import { describeRollups } from "./rollups.ts";

describeRollups("memory", { open: async () => createMemoryRollups(), refresh: async () => undefined });
