// What the server serves beside this module: the server's own, so that both mask statements alike.
export { normaliseStatement } from "../tracing/normalise.js";
