import { svelte } from '@sveltejs/vite-plugin-svelte';
import { writeFileSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import type { Plugin } from 'vite';

/** Where the build says which packages have code in it. Releases name them with their licences. */
const BUNDLED = new URL('./node_modules/.bundled.json', import.meta.url);
const bundled = new Set<string>();

/** Notes the packages whose code is in the files of a build. */
function noteBundled(): Plugin {
  return {
    name: 'note-bundled-packages',
    apply: 'build',
    generateBundle(_, files) {
      for (const file of Object.values(files)) {
        if (file.type !== 'chunk') continue;
        for (const [path, { renderedLength }] of Object.entries(file.modules)) {
          const name = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1];
          if (name && renderedLength > 0) bundled.add(name);
        }
      }
      writeFileSync(BUNDLED, JSON.stringify([...bundled].sort()));
    },
  };
}

/** Small modules that most pages need. In one file, they are smaller than in files of their own. */
const SHARED =
  /lib\/(creating|external-url|failure|key-columns|key-value|keys|live-list|live-table|people|row-store|source|toasts|writes)\b|components\/(ActionButton|Create|Empty|EndText|EventTable|LiveBadge|NamespaceChooser|StatusBadge)/;

export default defineConfig({
  base: '/ui/',
  plugins: [svelte(), noteBundled()],
  build: {
    target: 'es2022',
    // The content security policy allows no `data:` scripts or fonts.
    assetsInlineLimit: 0,
    // Static imports are preloaded by the browser; the polyfill would add an inline script.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: true,
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'shared', test: SHARED }] } } },
  },
  worker: { format: 'es', plugins: () => [noteBundled()] },
  test: { include: ['test/**/*.test.ts'], environment: 'node' },
});
