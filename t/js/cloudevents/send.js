#!/usr/bin/env node

// send.js - CloudEvents as the JavaScript SDK sends them.
//
//   URL, TOKEN in the environment; on standard input one JSON object a line:
//     {"mode": "binary" | "structured" | "batch", "events": [attributes...],
//      "type": "Content-Type instead of the SDK's own"}
//   for each one line of JSON: {"status", "headers", "sent", "body"}
//
// What goes over the wire is what the SDK made: its headers and its body.
// Run with NODE_PATH where the package is installed.

"use strict";

const http = require("node:http");
const readline = require("node:readline");
const { CloudEvent, HTTP, emitterFor } = require("cloudevents");

// The transport that the SDK is given: its message as an HTTP request.
function transport(message, options) {
  const headers = {
    ...message.headers,
    ...(options.type ? { "content-type": options.type } : {}),
    authorization: `Bearer ${process.env.TOKEN}`,
  };
  return new Promise((resolve, reject) => {
    const request = http.request(
      process.env.URL, { method: "POST", headers }, (response) => {
        const chunks = [];
        response.on("data", (chunk) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () => resolve({
          status: response.statusCode,
          headers: response.headers,
          sent: message.headers,
          body: Buffer.concat(chunks).toString(),
        }));
      });
    request.on("error", reject);
    request.end(message.body);
  });
}

const emit = {
  binary: emitterFor(transport, { binding: HTTP, mode: "binary" }),
  structured: emitterFor(transport, { binding: HTTP, mode: "structured" }),
};

// The SDK reads batches but does not write them: its events, as the format
// for batches has them.
function emitBatch(events, options) {
  return transport({
    headers: { "content-type": "application/cloudevents-batch+json" },
    body: JSON.stringify(events),
  }, options);
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { mode, events, type } = JSON.parse(line);
    const made = events.map((attributes) => new CloudEvent(attributes));
    const answer = mode === "batch"
      ? await emitBatch(made, { type })
      : await emit[mode](made[0], { type });
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
