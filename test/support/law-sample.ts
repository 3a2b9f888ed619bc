// How often laws run that do not say it: `npm test` takes a sample of fast-check's hundred, `npm run test:laws` all of them.
import fc from "fast-check";
import { sampleRuns } from "./law-runs.ts";

fc.configureGlobal({ ...fc.readConfigureGlobal(), numRuns: sampleRuns(100) });
