// Fails if the built console is larger than its budget. Sizes are those after gzip.
import { readFileSync, readdirSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const FIRST_LOAD = 60 * 1024;
const ALL = 150 * 1024;
const dist = new URL('../dist/', import.meta.url);

const size = (path) => gzipSync(readFileSync(new URL(path, dist)), { level: 9 }).length;
const html = readFileSync(new URL('index.html', dist), 'utf8');
const linked = [...html.matchAll(/(?:src|href)="\/ui\/(assets\/[^"]+)"/g)].map((found) => found[1]);
// Modules that the entry imports statically are loaded with it.
const seen = new Set();
const follow = (path) => {
  if (seen.has(path)) return;
  seen.add(path);
  if (!path.endsWith('.js')) return;
  const code = readFileSync(new URL(path, dist), 'utf8');
  for (const [, name] of code.matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) follow(`assets/${name}`);
};
linked.forEach(follow);

const first = size('index.html') + [...seen].reduce((sum, path) => sum + size(path), 0);
const assets = readdirSync(new URL('assets/', dist));
const all = size('index.html') + assets.reduce((sum, name) => sum + size(`assets/${name}`), 0);
const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
console.log(`first load ${kib(first)} of ${kib(FIRST_LOAD)}, all ${kib(all)} of ${kib(ALL)} (gzip)`);
if (first > FIRST_LOAD || all > ALL) {
  console.error('error: the console is larger than its budget');
  process.exit(1);
}
