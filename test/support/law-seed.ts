// Which random inputs the laws try. With `LAW_SEED=<number>` they are the same in each run, as in `npm test` and `.ci/run`,
// which judge a change: it must not fail by an input that it has nothing to do with. Other runs try new ones.
import fc from "fast-check";

const { LAW_SEED: seed } = process.env;
if (seed !== undefined) fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(seed) });
