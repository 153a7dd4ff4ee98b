// All unit tests of the pages' scripts in one process: `node --test` starts one for each file, most of what they take.

import { readdirSync } from "node:fs";

const FOLDER = new URL("./", import.meta.url);
const files = readdirSync(FOLDER, { recursive: true }).filter((name) => name.endsWith(".test.js"));
if (!files.length) throw new Error(`no tests below ${FOLDER}`);
for (const name of files.sort()) await import(new URL(name, FOLDER));
