#!/usr/bin/env node

// check.js - requests and answers against an OpenAPI 3.1 document.
//
//   check.js openapi.yaml
//
// First the document itself: the standard's own schema, every $ref, every
// schema, every example. One line of JSON says what is in it:
//
//   {"problems": [...], "pairs": ["GET /v1/usage 200", ...]}
//
// Then on standard input one exchange a line,
//
//   {"method", "target", "sent": {header: value}, "content": request body,
//    "valid": the request is meant to be right,
//    "status", "headers": {header: value}, "body",
//    "response": name under components/responses instead of the operation's}
//
// and for each a line {"pair": "GET /v1/usage 200", "problems": [...]}.
// Header names are in lower case, bodies are texts. A header that neither HTTP
// nor the document knows is a problem. Run with NODE_PATH where the packages
// are.

"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { pathToFileURL } = require("node:url");
const Ajv = require("ajv/dist/2020");
const yaml = require("js-yaml");

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch"];

// Of every answer of nginx; the document does not speak of them.
const PLAIN_HEADERS = new Set(["connection", "content-length", "content-type",
  "date", "keep-alive", "server", "transfer-encoding"]);

const file = process.argv[2];
const document = yaml.load(fs.readFileSync(file, "utf8"),
  { schema: yaml.JSON_SCHEMA });
const ajv = new Ajv({ strict: true, strictTypes: false, strictRequired: false,
  allErrors: true });
ajv.addVocabulary(Object.keys(document)); // no keywords, and none unknown
ajv.addSchema(document, "api", undefined, false);

// --- schemas --------------------------------------------------------------

const pointer = (...parts) => parts
  .map((part) => "/" + part.replace(/~/g, "~0").replace(/\//g, "~1"))
  .join("");

// A part of the document: where it is and what is there, behind its $ref.
function at(...parts) {
  let node = document;
  for (const part of parts) {
    node = node?.[part];
  }
  if (typeof node?.$ref === "string" && Object.keys(node).length === 1) {
    return at(...node.$ref.slice(2).split("/")
      .map((part) => part.replace(/~1/g, "/").replace(/~0/g, "~")));
  }
  return { parts, node };
}

const compiled = new Map();

// What is wrong with a value; the schema is found by its place.
function wrong(value, ...parts) {
  const key = pointer(...parts);
  if (!compiled.has(key)) {
    compiled.set(key, ajv.compile({ $ref: `api#${encodeURI(key)}` }));
  }
  const validate = compiled.get(key);
  return validate(value) ? [] : validate.errors.map((error) =>
    `${error.instancePath || "it"} ${error.message}`
    + (error.params.additionalProperty ?? error.params.unevaluatedProperty
      ?? error.params.allowedValue ?? error.params.allowedValues ?? ""
      ? `: ${JSON.stringify(error.params)}` : ""));
}

const about = (what, problems) => problems.map((text) => `${what}: ${text}`);

// --- operations -----------------------------------------------------------

// Those with the fewest {} first: /v1/usage/close before /v1/{any}/close.
const operations = Object.keys(document.paths).flatMap((path) => METHODS
  .filter((method) => document.paths[path][method])
  .map((method) => ({
    path, method, name: `${method.toUpperCase()} ${path}`,
    names: [...path.matchAll(/\{(.+?)\}/g)].map((match) => match[1]),
    pattern: new RegExp("^" + path.replace(/[.]/g, "\\.")
      .replace(/\{.+?\}/g, "([^/]+)") + "$"),
  })))
  .sort((a, b) => a.names.length - b.names.length);

function find(method, path) {
  return operations.find((one) => one.pattern.test(path)
    && one.method === method.toLowerCase());
}

function parametersOf(one) {
  const places = [["paths", one.path], ["paths", one.path, one.method]];
  return places.flatMap((place) =>
    (at(...place).node.parameters ?? []).map((ignored, i) =>
      at(...place, "parameters", String(i))));
}

// The media type of a request or an answer, as the document names it.
function mediaOf(content, type) {
  const bare = type.replace(/;.*/, "").trim().toLowerCase();
  return [type, bare].find((name) => content[name] !== undefined)
    ?? (/\+json$/.test(bare) ? "application/*+json" : undefined);
}

// --- requests -------------------------------------------------------------

// A text of a query or a header, as its schema wants it.
function typed(schema, text) {
  const target = schema.$ref ? at(...schema.$ref.slice(2).split("/")).node
    : schema;
  return target.type === "integer" && /^\d+$/.test(text) ? Number(text) : text;
}

function wrongParameter({ parts, node }, value) {
  if (value === undefined) {
    return node.required ? ["is missing"] : [];
  }
  if (node.content) {
    return wrong(JSON.parse(value), ...parts, "content", "application/json",
      "schema");
  }
  const list = node.schema.type === "array" && node.explode === false;
  return wrong(list ? value.split(",").filter((item) => item !== "")
    : typed(node.schema, value), ...parts, "schema");
}

function wrongQuery(parameters, query) {
  const own = parameters.filter(({ node }) => node.in === "query");
  const free = own.find(({ node }) => node.schema?.type === "object"
    || node.schema?.$ref?.endsWith("Arguments"));
  const rest = new Map(query);
  const problems = own.filter((one) => one !== free).flatMap((one) => {
    const value = rest.get(one.node.name);
    rest.delete(one.node.name);
    return about(`query ${one.node.name}`, wrongParameter(one, value));
  });
  if (free) {
    return problems.concat(about("query",
      wrong(Object.fromEntries(rest), ...free.parts, "schema")));
  }
  return problems.concat([...rest.keys()].map((name) =>
    `query ${name}: is not documented`));
}

function wrongContent(one, call) {
  const { parts, node } = at("paths", one.path, one.method, "requestBody");
  if (!call.content) {
    return node?.required ? ["the body is missing"] : [];
  }
  const binary = Object.keys(call.sent).some((name) =>
    /^ce-(id|source|specversion|type)$/.test(name));
  const type = call.sent["content-type"] ?? "";
  const name = node && (binary && !/cloudevents/.test(type)
    ? "application/*+json" : mediaOf(node.content, type));
  if (!name) {
    return [`the body: ${type} is not documented`];
  }
  const place = [...parts, "content", name];
  if (node.content[name]["x-line-schema"]) {
    return call.content.split(/\r?\n/).flatMap((line, i) => line.trim() === ""
      ? [] : about(`line ${i + 1}`, wrong(JSON.parse(line), ...place,
        "x-line-schema")));
  }
  return about("the body", wrong(JSON.parse(call.content), ...place, "schema"));
}

function wrongRequest(one, call, url) {
  const parameters = parametersOf(one);
  const values = one.pattern.exec(url.pathname).slice(1);
  const problems = parameters.filter(({ node }) => node.in === "path")
    .flatMap((parameter) => about(`path ${parameter.node.name}`,
      wrongParameter(parameter, decodeURIComponent(
        values[one.names.indexOf(parameter.node.name)]))));
  for (const parameter of parameters) {
    if (parameter.node.in === "header") {
      problems.push(...about(parameter.node.name, wrongParameter(parameter,
        call.sent[parameter.node.name.toLowerCase()])));
    }
  }
  return problems.concat(wrongQuery(parameters, url.searchParams),
    wrongContent(one, call));
}

// --- answers --------------------------------------------------------------

function wrongHeaders(headers, { parts, node }) {
  const known = Object.keys(node.headers ?? {});
  const problems = known.flatMap((name) => {
    const header = at(...parts, "headers", name);
    const value = headers[name.toLowerCase()];
    return about(name, value === undefined
      ? (header.node.required ? ["is missing"] : [])
      : wrong(value, ...header.parts, "schema"));
  });
  const lower = new Set(known.map((name) => name.toLowerCase()));
  return problems.concat(Object.keys(headers)
    .filter((name) => !lower.has(name) && !PLAIN_HEADERS.has(name))
    .map((name) => `${name}: is not documented`));
}

function wrongBody(call, { parts, node }) {
  const type = call.headers["content-type"] ?? "";
  if (node.content[type] === undefined) {
    return [`Content-Type ${type}: is not documented`];
  }
  if (call.method === "HEAD") {
    return call.body === "" ? [] : ["HEAD has a body"];
  }
  let value = call.body;
  try {
    value = /json/.test(type) ? JSON.parse(call.body) : call.body;
  } catch (error) {
    return [`the body: ${error.message}`];
  }
  return about("the body", wrong(value, ...parts, "content", type, "schema"));
}

function judge(call) {
  const url = new URL(call.target, "http://localhost");
  const one = find(call.method === "HEAD" ? "GET" : call.method, url.pathname);
  const place = call.response ? ["components", "responses", call.response]
    : one && ["paths", one.path, one.method, "responses", String(call.status)];
  const answer = place && at(...place);
  const pair = `${one ? one.name : `${call.method} ${url.pathname}`}`
    + ` ${call.status}`;
  if (!answer?.node) {
    return { pair, problems: ["is not documented"] };
  }
  const problems = [...wrongHeaders(call.headers, answer),
    ...wrongBody(call, answer)];
  try {
    problems.push(...(call.valid ? wrongRequest(one, call, url) : []));
  } catch (error) {
    problems.push(`the request: ${error.message}`);
  }
  return { pair, problems };
}

// --- the document ---------------------------------------------------------

// Every schema compiles, every example is one of its schema.
function wrongPlaces(node, parts) {
  if (typeof node !== "object" || node === null) {
    return [];
  }
  const problems = [];
  if (node.schema && typeof node.schema === "object") {
    const values = Object.values(node.examples ?? {}).map((one) => one.value)
      .concat(node.example === undefined ? [] : [node.example]);
    try {
      wrong(null, ...parts, "schema");
      problems.push(...values.flatMap((value) =>
        about(`example at ${pointer(...parts)}`,
          wrong(value, ...parts, "schema"))));
    } catch (error) {
      problems.push(`schema at ${pointer(...parts)}: ${error.message}`);
    }
  }
  return problems.concat(Object.keys(node).flatMap((key) =>
    key === "value" || key === "schema" ? []
      : wrongPlaces(node[key], [...parts, key])));
}

async function main() {
  const { Validator } = await import(pathToFileURL(
    require.resolve("@seriousme/openapi-schema-validator")).href);
  const validity = await new Validator().validate(structuredClone(document));
  const problems = validity.valid ? [] : [].concat(validity.errors)
    .map((error) => typeof error === "string" ? error
      : `${error.instancePath} ${error.message}`);
  problems.push(...wrongPlaces(document, []));
  const pairs = operations.flatMap((one) => Object.keys(
    document.paths[one.path][one.method].responses)
    .map((status) => `${one.name} ${status}`));
  process.stdout.write(JSON.stringify({ problems, pairs }) + "\n");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(judge(JSON.parse(line))) + "\n");
  }
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
