// Builds the pages into src/monarch/dashboard/static/, which git keeps: `npm ci && npm run build`.
//
// The same sources give the same bytes. `manifest.json` has a digest of the sources, so that what was not built again is seen
// without node.
import { createHash } from "node:crypto";
import { readFile, readdir, rm, writeFile, copyFile, mkdir } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import esbuild from "esbuild";
import { compile, compileModule } from "svelte/compiler";

const here = fileURLToPath(new URL(".", import.meta.url));
const source = join(here, "src");
const target = process.argv[2] ?? join(here, "../../src/monarch/dashboard/static");
const LIMIT = 300_000; // bytes, compressed, of all files together

const cssHash = ({ hash, css }) => `s-${hash(css)}`; // the default has the path of this folder in it

/** Components; their styles go to app.css, as the pages' Content-Security-Policy wants it. */
const svelte = {
  name: "svelte",
  setup(build) {
    const styles = new Map();
    build.onLoad({ filter: /\.svelte$/, namespace: "file" }, async ({ path }) => {
      const { js, css, warnings } = compile(await readFile(path, "utf8"), { filename: path, css: "external", cssHash, runes: true });
      let contents = js.code;
      if (css) {
        styles.set(path, css.code);
        contents += `\nimport ${JSON.stringify(`style:${path}`)};`;
      }
      return { contents, warnings: warnings.map(({ message }) => ({ text: message })) };
    });
    build.onLoad({ filter: /\.svelte\.ts$/, namespace: "file" }, async ({ path }) => {
      const { code } = await esbuild.transform(await readFile(path, "utf8"), { loader: "ts", target: "es2022" });
      return { contents: compileModule(code, { filename: path }).js.code };
    });
    build.onResolve({ filter: /^style:/ }, ({ path }) => ({ path: path.slice("style:".length), namespace: "style" }));
    build.onLoad({ filter: /.*/, namespace: "style" }, ({ path }) => ({ contents: styles.get(path), loader: "css" }));
  },
};

/** `import { modules } from "pages"`: all files of src/pages. */
const pages = {
  name: "pages",
  setup(build) {
    build.onResolve({ filter: /^pages$/ }, ({ path }) => ({ path, namespace: "pages" }));
    build.onLoad({ filter: /.*/, namespace: "pages" }, async () => {
      const names = (await readdir(join(source, "pages"))).filter((name) => name.endsWith(".svelte")).sort();
      const imports = names.map((name, at) => `import * as page${at} from "./pages/${name}";`).join("\n");
      return { contents: `${imports}\nexport const modules = [${names.map((_, at) => `page${at}`)}];`, resolveDir: source };
    });
  },
};

const digest = (content) => createHash("sha256").update(content).digest("hex");

/** Of all that the built files depend on: each file's path and content. */
async function digestOfSources() {
  const entries = await readdir(source, { recursive: true, withFileTypes: true });
  const inside = entries.filter((entry) => entry.isFile()).map((entry) => relative(here, join(entry.parentPath, entry.name)));
  const names = [...inside, "build.mjs", "package.json", "package-lock.json", "tsconfig.json"].map((name) => name.split(sep).join("/"));
  const all = createHash("sha256");
  for (const name of names.sort()) all.update(`${name} ${digest(await readFile(join(here, name)))}\n`);
  return all.digest("hex");
}

/** The licences of all packages of which something is in the built files. */
async function licenses(inputs) {
  const found = inputs.map((path) => /(?:^|:)(node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter((folder) => folder);
  const texts = [...new Set(found)].sort().map(async (folder) => {
    const { name, version } = JSON.parse(await readFile(join(here, folder, "package.json"), "utf8"));
    const file = (await readdir(join(here, folder))).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${folder} has no file with its licence`);
    return `${name} ${version}\n\n${(await readFile(join(here, folder, file), "utf8")).trim()}\n`;
  });
  return (await Promise.all(texts)).join("\n\n");
}

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
const { metafile } = await esbuild.build({
  entryPoints: { app: join(source, "main.ts") },
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none", // licenses.txt has them
  metafile: true,
  conditions: ["production", "browser", "svelte"],
  plugins: [svelte, pages],
  absWorkingDir: here,
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg", "good.svg", "late.svg", "bad.svg"]) await copyFile(join(source, name), join(target, name));

await writeFile(join(target, "licenses.txt"), await licenses(Object.keys(metafile.inputs)));

const files = {};
let size = 0;
for (const name of (await readdir(target)).sort()) {
  const content = await readFile(join(target, name));
  files[name] = digest(content);
  size += gzipSync(content, { level: 9 }).length;
}
await writeFile(join(target, "manifest.json"), JSON.stringify({ sources: await digestOfSources(), files }, null, 1) + "\n");
console.log(`${Object.keys(files).length} files, ${size} bytes compressed`);
if (size > LIMIT) {
  console.error(`they may have ${LIMIT}`);
  process.exit(1);
}
