// Follows log lines, and goes on where it was cut: TOKEN=… node deploy/tail.mjs [http://localhost:8080]
const url = `${process.argv[2] ?? "http://localhost:8080"}/api/v2/logs/lines`;
const body = JSON.stringify({
  site_id: "demo-shop",
  source_ids: ["app", "nginx"],
  query: "",
  use_expressions: true,
  pagination: { per_page: 1, order: "ASC" },
});
const headers = { Authorization: `Bearer ${process.env.TOKEN}`, Accept: "text/event-stream" };
const seen = new Set(); // a line may come again after a cut
for (let last = "over"; last !== "complete" && last !== "refused"; ) {
  try {
    const answer = await fetch(url, { method: "POST", headers, body });
    if (answer.status < 500 && answer.status !== 200 && answer.status !== 429) throw await answer.text(); // final
    let text = "";
    for await (const chunk of answer.ok ? answer.body.pipeThrough(new TextDecoderStream()) : []) {
      const blocks = (text + chunk).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const field = (name) => block.match(new RegExp(`^${name}: (.*)$`, "m"))?.[1];
        const [event, id, data] = [field("event"), field("id"), field("data")];
        if (id !== undefined) headers["Last-Event-ID"] = id;
        if (event === "line") {
          const line = JSON.parse(data);
          if (seen.has(`${line.source_id} ${line.id}`)) continue;
          seen.add(`${line.source_id} ${line.id}`);
          console.log(line.timestamp, line.message);
        } else if (event === "end") last = JSON.parse(data).reason;
        else if (event !== undefined) console.error(event, data);
      }
    }
  } catch (error) {
    if (typeof error === "string") throw error;
  }
  await new Promise((resolve) => setTimeout(resolve, 1_000));
}
