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

/** The modules of the first load that more than one of its pages needs. In one file, they are smaller than in files of their own. */
const SHARED_LIB =
  'access|api|clock|creating|failure|focus|format|key-columns|keys|kinds|live-list|live-table|namespaces|nav|parts|people|refusal|retry|route|row-store|session|shortcuts|source|table-engine|theme|toasts|watch';
const SHARED_COMPONENTS = 'ActionButton|Breakable|Command|CommandText|Create|Dialog|Empty|EndText|ErrorView|EventTable|Icon|ListCard|LiveBadge|NamespaceChooser|PageHead|Reason|StatusBadge';
const SHARED = new RegExp(`node_modules|src/(texts\\.ts|lib/(${SHARED_LIB})|components/(${SHARED_COMPONENTS})\\.)`);

/** The pages of objects, and what most of them need. They are always loaded together, and are smaller in one file. */
const DETAIL_COMPONENTS =
  'Detail|LastWay|LastWayNote|Facts|Conditions|DeleteDialog|ConfirmDialog|Consequences|EnableButton|SameCommand|YamlTab|EventsTab|Conflicts|Diff|YamlEditor|AccessTab|WhoCan|RulesCard|Share|ShareDialog|Readers|NameList|Owned|SecretOnce|KeyTable|Members|More|RuleList|Suggestions|SafeLink';
const DETAILS = new RegExp(`src/(pages/(objects|SecretPage|ProjectPage|InstancePage|KeyPage|WorkloadPage|ProviderPage)|components/(${DETAIL_COMPONENTS})\\.|texts-(objects|pages|secret|share|stops)|lib/(command|external-url|known-people|last-way|save-check|merge|other-ways|owned|readers|scope|shares|sources|value-age|rules|rule-words|stops|suggested|live-object|writes|yaml))`);

/** The pages of an administrator: people, roles and clusters. */
const PEOPLE =
  /src\/(pages\/(Roles|PersonPage|ClusterPage)|components\/(Grant|Revoke|RolesOf|Reach|InstallAgent|Invitations|TeamGroups|SignOn)|forms\/(NewCluster|NewNamed|NewUser)|lib\/(roles|new-user|role-places|lacking|reach|agents)|texts-(clusters|identity|roles))/;

/** The forms that create objects, with the editor of scopes. */
const FORMS = /src\/(forms\/|components\/(ScopeEditor|ScopePreview|OwnerField|BulkDelete)\.|pages\/Tokens|lib\/(claims|examples|jwt|key-value))/;

/** Small pages that are about no kind, and what lies over a page: together they are smaller than in files of their own. */
const SMALL_PAGES = /src\/(pages\/(Why|Consent|Missing|Sessions)|lib\/(why|user-agent))/;
const OVERLAYS = /src\/(components\/(Palette|Help)|lib\/palette|texts-palette)/;

/** A module is in the first group that names it. */
const GROUPS = [
  { name: 'shared', test: SHARED, priority: 3 },
  { name: 'details', test: DETAILS, priority: 2 },
  { name: 'people', test: PEOPLE, priority: 1 },
  { name: 'forms', test: FORMS, priority: 0 },
  { name: 'pages', test: SMALL_PAGES, priority: 0 },
  { name: 'overlays', test: OVERLAYS, priority: 0 },
];

/** The class that keeps the styles of a component apart. It is in each of its elements, so it is short. */
const cssHash = ({ hash, css }: { hash: (text: string) => string; css: string }): string => `s${hash(css).slice(0, 4)}`;

export default defineConfig({
  base: '/ui/',
  plugins: [svelte({ compilerOptions: { cssHash } }), noteBundled()],
  build: {
    target: 'es2022',
    // The content security policy allows no `data:` scripts or fonts.
    assetsInlineLimit: 0,
    // Static imports are preloaded by the browser; the polyfill would add an inline script.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: true,
    rolldownOptions: { output: { codeSplitting: { groups: GROUPS } } },
  },
  worker: { format: 'es', plugins: () => [noteBundled()] },
  test: { include: ['test/**/*.test.ts'], environment: 'node' },
});
