// Copies the named files of node_modules to static/vendor, without source-map comments (the manifest storage
// refuses a comment whose map is missing), and builds static/icons/sprite.svg from the icons named below.

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const FILES = {
  "@tabler/core/dist/css/tabler.min.css": "tabler/tabler.min.css",
  "htmx.org/dist/htmx.min.js": "htmx/htmx.min.js",
  "uplot/dist/uPlot.esm.js": "uplot/uPlot.esm.js",
  "uplot/dist/uPlot.min.css": "uplot/uPlot.min.css",
  "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2": "fonts/inter-latin.woff2",
  "@fontsource-variable/inter/files/inter-latin-ext-wght-normal.woff2": "fonts/inter-latin-ext.woff2",
  "@fontsource-variable/jetbrains-mono/files/jetbrains-mono-latin-wght-normal.woff2":
    "fonts/jetbrains-mono-latin.woff2",
  "@fontsource-variable/jetbrains-mono/files/jetbrains-mono-latin-ext-wght-normal.woff2":
    "fonts/jetbrains-mono-latin-ext.woff2",
  "htmx.org/LICENSE": "LICENSES/htmx.txt",
  "uplot/LICENSE": "LICENSES/uplot.txt",
  "@tabler/icons/LICENSE": "LICENSES/tabler-icons.txt",
  "@fontsource-variable/inter/LICENSE": "LICENSES/inter.txt",
  "@fontsource-variable/jetbrains-mono/LICENSE": "LICENSES/jetbrains-mono.txt",
};

// Tabler outline icons, by their own names. The words on the right say where each is used.
const ICONS = `
  player-play circle-half-2 check alert-triangle x clock square help-circle wifi-off
  search bell chevron-down chevron-right chevron-left chevron-up plus minus download upload copy bolt target trash
  tag archive archive-off star pencil note columns-3 keyboard moon sun language logout user key settings-2
  adjustments adjustments-horizontal dots refresh external-link arrow-down arrow-up arrow-left arrow-right
  player-stop player-pause bookmark pin file file-text cpu server stack-2 link eye maximize minimize
  arrow-back-up circle circle-check info-circle list terminal-2 device-floppy api database world flag
  chart-line timeline message folder history filter home rocket send code braces zoom-in zoom-reset mood-empty
  lock shield-lock plug-connected-x wave-sine thumb-up thumb-down
`
  .split(/\s+/)
  .filter(Boolean);

const text = /\.(css|js)$/;
for (const [from, to] of Object.entries(FILES)) {
  const source = join("node_modules", from);
  const target = join("static/vendor", to);
  mkdirSync(dirname(target), { recursive: true });
  if (!text.test(to)) {
    copyFileSync(source, target);
    continue;
  }
  const body = readFileSync(source, "utf8")
    .replace(/\/\*[#@] sourceMappingURL=.*?\*\//g, "")
    .replace(/^\/\/[#@] sourceMappingURL=.*$/gm, "");
  writeFileSync(target, `${body.trimEnd()}\n`);
}

const symbols = ICONS.map((name) => {
  const body = readFileSync(`node_modules/@tabler/icons/icons/outline/${name}.svg`, "utf8")
    .replace(/^[\s\S]*?<svg[\s\S]*?>/, "")
    .replace(/<\/svg>\s*$/, "")
    .replace(/<path stroke="none" d="M0 0h24v24H0z" fill="none" \/>/, "")
    .replace(/\s*\n\s*/g, "")
    .trim();
  return `<symbol id="${name}" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.75" stroke-linecap="round" stroke-linejoin="round">${body}</symbol>`;
});
mkdirSync("static/icons", { recursive: true });
writeFileSync("static/icons/sprite.svg", `<svg xmlns="http://www.w3.org/2000/svg">\n${symbols.join("\n")}\n</svg>\n`);
console.log(`${Object.keys(FILES).length} files and ${ICONS.length} icons`);
