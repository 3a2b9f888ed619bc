// A cluster that takes every document at once, unless it is away: where the intake under load delivers to. A process of
// its own, so that neither the clients nor the server pay for it.
//
// `node bench/sink.ts` prints one JSON line when it listens: {"url"}. `PUT /away` and `PUT /back` say whether it is there.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

let away = false;
const server = createServer((request, response) => {
  const url = request.url ?? "";
  let newlines = 0;
  request.on("data", (chunk: Buffer) => {
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) newlines += 1;
  });
  request.on("end", () => {
    if (url === "/away" || url === "/back") {
      away = url === "/away";
      return void response.end("ok\n");
    }
    response.setHeader("x-elastic-product", "Elasticsearch").setHeader("content-type", "application/json");
    if (away) return void response.writeHead(503).end("{}");
    if (url.startsWith("/_resolve/")) return void response.end('{"indices":[{"name":"reports"}]}');
    if (!url.includes("/_bulk")) return void response.end('{"version":{"number":"8.19.0"}}');
    // Two lines each: what to do, and the document.
    const items = Array.from({ length: newlines >> 1 }, () => '{"create":{"status":201}}');
    response.end(`{"items":[${items.join(",")}]}`);
  });
});
process.on("SIGTERM", () => process.exit(0));
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ url: `http://127.0.0.1:${port}` }));
});
