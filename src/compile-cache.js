// Enables Node's compile cache. It halves the processor time of a start. It also keeps TypeScript without its types, so
// that Node need not load the type stripper, which saves 20 MB. Where the folder cannot be written it has no effect.
import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/readout", import.meta.url)));
