// What the server serves beside this module: the server's own, so that both mask statements alike.
export { normaliseStatement } from "../../tracing/spans/normalise-statement.js";
