// Fills a server for the figures of tracing: `node bench/tracing-fill.ts URL REQUESTS REQUESTS_OF_DAYS`.
import { benchSpans, fill, spansOfDays } from "./tracing-documents.ts";

const [url = "", requests, requestsOfDays] = process.argv.slice(2);
await fill(url, "bench", benchSpans(Number(requests)));
await fill(url, "days", spansOfDays(Number(requestsOfDays)));
