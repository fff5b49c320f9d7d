import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { findPeople } from '../src/lib/known-people';
import { fitting, people } from '../src/lib/suggested.svelte';
import { FakeServer } from './fake-server';

vi.mock('../src/lib/session.svelte', () => ({ session: { self: undefined } }));

let server: FakeServer;
beforeEach(() => (server = new FakeServer()));
afterEach(() => vi.unstubAllGlobals());

const table = (...names: string[]) => ({
  columnDefinitions: [{ name: 'Name' }, { name: 'Display Name' }],
  rows: names.map((name) => ({ cells: [name, `The ${name}`], object: { metadata: { name } } })),
});
const names = (from: number, to: number) => ({ items: Array.from({ length: to - from }, (_, at) => ({ metadata: { name: `u${from + at}` } })) });
const asked = () => server.sent.map(({ url }) => `${url.pathname.split('/').at(-1)} ${url.searchParams.get('fieldSelector')} ${url.searchParams.get('limit')}`);

it('finds users and teams by the beginning of the name', async () => {
  server.list(table('ops', 'opal'));
  server.list(table('ops-team'));
  expect(await findPeople(' Op')).toEqual([
    { subject: 'user/ops', title: 'The ops' },
    { subject: 'user/opal', title: 'The opal' },
    { subject: 'team/ops-team', title: 'The ops-team' },
  ]);
  server.list(table('ops-team'));
  expect(await findPeople('team/op')).toHaveLength(1);
  expect(asked()).toEqual(['users metadata.name^=op 20', 'teams metadata.name^=op 20', 'teams metadata.name^=op 20']);
  // A name of another form is none.
  expect([await findPeople(''), await findPeople('user/'), await findPeople('a b'), await findPeople('key/x')]).toEqual([[], [], [], []]);
  expect(server.sent).toHaveLength(3);
});

it('asks for more names only if the first ones are not all', async () => {
  server.list(names(0, 3));
  server.list({ items: [] });
  await people.load();
  await people.find('u9');
  expect([people.isPartial, server.sent.length]).toEqual([false, 2]);
  server.list(names(0, 500));
  server.list({ items: [] });
  await people.load();
  server.list(table('u900', 'u1'));
  server.list(table('u9-team'));
  await people.find('u9');
  expect([people.users.length, people.teams]).toEqual([501, ['u9-team']]);
  expect(people.subjects).toEqual(expect.arrayContaining(['user/u900', 'team/u9-team']));
});

it('suggests the names that fit, by the name or the title, and not too many at once', () => {
  const titles = new Map([['ada', 'Ada Lovelace']]);
  expect(fitting(['ada', 'bob'], 'love', titles)).toEqual(['ada']);
  expect(fitting(['ada', 'bob'], '', titles)).toEqual(['ada', 'bob']);
  expect(fitting(names(0, 500).items.map(({ metadata }) => metadata.name), 'U', new Map())).toHaveLength(50);
});
