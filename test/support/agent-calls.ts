// Calls of tools as an agent makes them, without the protocol.
import { expect } from "vitest";
import { type Demo, token } from "./demo-server.ts";

export type Row = Readonly<Record<string, unknown>>;
interface Page {
  readonly rows: readonly Row[];
  readonly fields?: Row;
  readonly left: number | null;
  readonly cursor: string | null;
  readonly note?: string;
}
export interface Outcome {
  readonly content: readonly { readonly text: string }[];
  readonly structuredContent: Page & { readonly error?: string };
  readonly isError?: boolean;
}

export async function callTool(
  { server }: Demo,
  name: string,
  args: object,
  as: string = token,
): Promise<Outcome> {
  const response = await server.fetch("http://readout/api/mcp/tool", {
    method: "POST",
    headers: { authorization: `Bearer ${as}`, "content-type": "application/json" },
    body: JSON.stringify({ name, arguments: args }),
  });
  expect(response.status).toBe(200);
  return (await response.json()) as Outcome;
}

/** All pages of a tool, by its cursor. */
export async function readPages(demo: Demo, name: string, args: object): Promise<readonly Page[]> {
  const pages: Page[] = [];
  let cursor: string | null | undefined;
  while (cursor !== null) {
    const { structuredContent: page, isError } = await callTool(demo, name, {
      ...args,
      ...(cursor && { cursor }),
    });
    expect(isError).toBeUndefined();
    expect(JSON.stringify(page.rows).length).toBeLessThanOrEqual(32_100);
    pages.push(page);
    cursor = page.cursor;
    expect(pages.length).toBeLessThan(500);
    if (cursor !== null) expect(page.rows.length).toBeGreaterThan(0);
  }
  return pages;
}

interface ResourcePage {
  readonly rows: readonly unknown[];
  readonly left: number;
  readonly next: string | null;
  readonly note?: string;
}

export async function readResourcePage({ server }: Demo, uri: string): Promise<ResourcePage> {
  const response = await server.fetch("http://readout/mcp", {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "resources/read", params: { uri } }),
  });
  const { result } = (await response.json()) as { result: { contents: readonly { text: string }[] } };
  return JSON.parse(result.contents[0]?.text ?? "") as ResourcePage;
}
