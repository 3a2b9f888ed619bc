// The official clients of both families of revisions, over a real connection.
import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from "@modelcontextprotocol/client";
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/client/validators/ajv";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createDemo, type Demo, token } from "../support/demo-server.ts";

let demo: Demo;
let url: URL;
beforeAll(async () => {
  demo = await createDemo();
  const { port } = await demo.server.listen({ host: "127.0.0.1", port: 0 });
  url = new URL(`http://127.0.0.1:${port}/mcp`);
});
afterAll(async () => {
  await demo.server.close(0);
  await demo.close();
});

const requestInit = { headers: { authorization: `Bearer ${token}` } };
const identity = { name: "test", version: "1" };

const clients = [
  [
    "2025",
    async () => {
      const client = new Client(identity);
      await client.connect(new StreamableHTTPClientTransport(url, { requestInit }) as never);
      return client;
    },
  ],
  [
    "2026-07-28",
    async () => {
      const client = new ModernClient(identity, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
      await client.connect(new ModernTransport(url, { requestInit }));
      return client;
    },
  ],
] as const;

test("the schema of each tool can be compiled, and takes the tool's example", async () => {
  const client = await clients[1][1]();
  const { tools } = await client.listTools();
  const validator = new AjvJsonSchemaValidator();
  for (const { name, inputSchema, description = "" } of tools) {
    const example = JSON.parse(/\nExample: (.*)$/.exec(description)?.[1] ?? "");
    const validate = validator.getValidator(inputSchema as never);
    expect([name, validate(example).errorMessage]).toEqual([name, undefined]);
    if (name === "get_kubernetes_pods") {
      expect(validate({ ...example, snapshots: true, state: "Failed" }).valid).toBe(true);
      expect(validate({ ...example, snapshots: true, state: "Gone" }).valid).toBe(false);
    }
  }
  await client.close();
});

test.each(clients)("the client of %s lists, calls and reads", async (_, connect) => {
  const client = await connect();
  const { tools } = await client.listTools();
  expect(tools.map(({ name }) => name)).toContain("get_log_lines");
  const arguments_ = { app_name: "demo-shop", per_page: 3 };
  const answer = await client.callTool({ name: "get_log_lines", arguments: arguments_ });
  const page = answer.structuredContent as { rows: object[]; cursor: string };
  expect(page.rows).toHaveLength(3);
  const next = await client.callTool({
    name: "get_log_lines",
    arguments: { ...arguments_, cursor: page.cursor },
  });
  expect((next.structuredContent as { rows: object[] }).rows).toHaveLength(3);
  const refused = await client.callTool({ name: "get_log_lines", arguments: { app_name: "nope" } });
  expect(refused.isError).toBe(true);
  const { resources } = await client.listResources();
  expect(resources.map(({ uri }) => uri)).toContain("readout://sites/demo-shop/log-fields");
  for (const { uri } of resources) {
    const { contents } = await client.readResource({ uri });
    const [content] = contents;
    const page = JSON.parse(content !== undefined && "text" in content ? content.text : "");
    expect(page.rows.length).toBeGreaterThan(0);
  }
  await expect(client.callTool({ name: "drop_tables", arguments: {} })).rejects.toThrow(
    "no tool of that name",
  );
  await client.close();
});
