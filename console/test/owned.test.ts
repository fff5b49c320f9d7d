import { afterEach, expect, it, vi } from 'vitest';
import { askOwned } from '../src/lib/owned';
import { stopTexts } from '../src/texts-stops';

afterEach(() => vi.unstubAllGlobals());

/** A server with these owners in the lists of some kinds, and none in those of others; `undefined` is refused. */
function serve(lists: Record<string, string[] | undefined>) {
  vi.stubGlobal('fetch', (path: string) => {
    const plural = path.split('/').at(-1)?.split('?')[0] ?? '';
    if (plural in lists && !lists[plural]) return Promise.resolve(new Response('{}', { status: 403 }));
    // Two pages: the second one has the rows.
    const isFirst = !path.includes('continue=');
    const rows = isFirst ? [] : (lists[plural] ?? []).map((owner) => ({ cells: ['x', owner] }));
    const table = { metadata: isFirst ? { continue: 'more' } : {}, columnDefinitions: [{ name: 'Name' }, { name: 'Owner' }], rows };
    return Promise.resolve(new Response(JSON.stringify(table)));
  });
}

it('counts the objects of the users in all kinds', async () => {
  serve({ sharedsecrets: ['user/ada', 'team/ada', 'user/bob'], projects: ['user/ada'], ownedaccesskeys: ['user/ada'] });
  expect(await askOwned(['ada'])).toEqual({ objects: 2, isAtLeast: false });
  expect(await askOwned(['ada', 'bob'])).toEqual({ objects: 3, isAtLeast: false });
});

it('says that there may be more where it may not look', async () => {
  serve({ sharedsecrets: ['user/ada'], clusters: undefined });
  expect(await askOwned(['ada'])).toEqual({ objects: 1, isAtLeast: true });
  expect(stopTexts.owned(1, false)).toBe('1 object loses its owner.');
  expect(stopTexts.owned(2, true)).toBe('At least 2 objects lose their owner.');
  expect(stopTexts.owned(0, true)).toContain('not known');
});
