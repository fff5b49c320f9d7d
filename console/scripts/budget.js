// Fails if the built console is larger than its budget. Sizes are those after gzip.
import { readFileSync, readdirSync, rmSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const FIRST_LOAD = 60 * 1024;
const ALL = 170 * 1024;
/** The pages that a browser can begin with after a login. */
const FIRST_PAGES = ['src/pages/Overview.svelte', 'src/pages/ListPage.svelte'];

const dist = new URL('../dist/', import.meta.url);
const manifest = JSON.parse(readFileSync(new URL('.vite/manifest.json', dist), 'utf8'));
// It is for this check alone: the server would serve it.
rmSync(new URL('.vite/', dist), { recursive: true });

const size = (path) => gzipSync(readFileSync(new URL(path, dist)), { level: 9 }).length;
const total = (paths) => [...paths].reduce((sum, path) => sum + size(path), 0);

/** The files that a module needs before it runs. */
function filesOf(name, files = new Set(), seen = new Set()) {
  if (seen.has(name)) return files;
  seen.add(name);
  const chunk = manifest[name];
  if (!chunk) throw new Error(`${name} is not in the build`);
  for (const file of [chunk.file, ...(chunk.css ?? [])]) files.add(file);
  for (const imported of chunk.imports ?? []) filesOf(imported, files, seen);
  return files;
}

const entry = filesOf('index.html');
const firstFiles = FIRST_PAGES.map((page) => new Set(['index.html', ...entry, ...filesOf(page)]));
const first = Math.max(...firstFiles.map(total));
const all = total(['index.html', ...readdirSync(new URL('assets/', dist)).map((name) => `assets/${name}`)]);
const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
if (process.argv.includes('--parts')) {
  const parts = readdirSync(new URL('assets/', dist)).map((name) => ({ name, bytes: size(`assets/${name}`) }));
  for (const { name, bytes } of parts.sort((a, b) => b.bytes - a.bytes)) {
    const isFirst = firstFiles.some((files) => files.has(`assets/${name}`));
    console.log(`${kib(bytes).padStart(9)} ${isFirst ? 'first load' : '          '} ${name}`);
  }
}
console.log(`first load ${kib(first)} of ${kib(FIRST_LOAD)}, all ${kib(all)} of ${kib(ALL)} (gzip)`);
if (first > FIRST_LOAD || all > ALL) {
  console.error('error: the console is larger than its budget');
  process.exit(1);
}
