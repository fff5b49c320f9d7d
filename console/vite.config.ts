import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  base: '/ui/',
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // The content security policy allows no `data:` scripts or fonts.
    assetsInlineLimit: 0,
    // Static imports are preloaded by the browser; the polyfill would add an inline script.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: true,
  },
  worker: { format: 'es' },
  test: { include: ['test/**/*.test.ts'], environment: 'node' },
});
