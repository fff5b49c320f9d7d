import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { decideAction, decideAny, forgetDecisions } from '../src/lib/access';
import { SHARED_SECRETS, PROJECT_SECRETS, USERS } from '../src/lib/kinds';
import { needsOfNew } from '../src/lib/creating';
import { namespaces } from '../src/lib/namespaces.svelte';
import { toGrant } from '../src/lib/role-places';
import type { PreviewRequest } from '../src/lib/types';
import { texts } from '../src/texts';

vi.mock('../src/lib/router.svelte', () => ({ router: { param: () => '' } }));

/** The requests that the server has been asked about; it allows those with the verb `get`. */
let asked: PreviewRequest[] = [];

beforeEach(() => {
  asked = [];
  vi.stubGlobal('fetch', (_: string, { body }: RequestInit) => {
    const { requests } = (JSON.parse(String(body)) as { spec: { requests: PreviewRequest[] } }).spec;
    asked.push(...requests);
    const results = requests.map(({ verb, name }) => ({ allowed: verb === 'get', reason: `no ${verb} ${name}` }));
    return Promise.resolve(new Response(JSON.stringify({ status: { results } })));
  });
});

afterEach(() => (vi.unstubAllGlobals(), forgetDecisions(), (namespaces.projects = [])));

const ask = (verb: string, name = 'a'): PreviewRequest => ({ verb, group: 'g', resource: 'things', name });

describe('an action', () => {
  it.each([
    ['asks for nothing', { needs: [] }, texts.action.nowhere],
    ['has no place', { needs: [], oneOf: [] }, texts.action.nowhere],
    ['has no place, and a permission', { needs: [ask('get')], oneOf: [] }, texts.action.nowhere],
    ['lacks one permission', { needs: [ask('get'), ask('delete')] }, 'no delete a'],
    ['lacks each of a choice', { needs: [], oneOf: [ask('patch', 'b'), ask('delete')] }, 'no patch b'],
    ['lacks the others', { needs: [ask('delete')], oneOf: [ask('get')] }, 'no delete a'],
  ])('that %s is denied', async (_, needs, reason) => expect(await decideAction(needs)).toEqual({ allowed: false, reason }));

  it.each([
    ['every caller may do', { needs: 'nothing' as const }],
    ['has its permissions', { needs: [ask('get'), ask('get', 'b')] }],
    ['has one of a choice', { needs: [], oneOf: [ask('delete'), ask('get')] }],
  ])('that %s is allowed', async (_, needs) => expect((await decideAction(needs)).allowed).toBe(true));

  it('asks about the first of a choice alone, if that is allowed', async () => {
    expect((await decideAny([ask('get'), ask('delete'), ask('patch')])).allowed).toBe(true);
    expect(asked).toEqual([ask('get')]);
  });
});

it('creates where the caller may: in the chosen namespace, or else in one of the projects', () => {
  expect(needsOfNew(USERS, '')).toEqual([{ verb: 'create', group: USERS.group, resource: 'users' }]);
  expect(needsOfNew(SHARED_SECRETS, 'shop').map(({ namespace }) => namespace)).toEqual(['shop']);
  expect(needsOfNew(PROJECT_SECRETS, '')).toEqual([]);
  namespaces.projects = ['web', 'shop'];
  expect(needsOfNew(PROJECT_SECRETS, '').map(({ namespace }) => namespace)).toEqual(['p-web', 'p-shop']);
});

it('grants a role everywhere, in a namespace or in a project', () => {
  namespaces.projects = ['web'];
  const [everywhere, ...others] = toGrant().map(({ verb, resource, namespace, name }) => [verb, resource, namespace ?? name ?? ''].join(' ').trim());
  expect(everywhere).toBe('create clusterrolebindings');
  expect(others).toEqual(['create rolebindings', 'patch projects web', 'create rolebindings platform', 'create rolebindings p-web']);
});

it('has no button without a permission that does not say so', () => {
  const sources = Object.values(import.meta.glob<string>('../src/**/*.svelte', { query: '?raw', import: 'default', eager: true }));
  const buttons = sources.flatMap((source) => source.match(/<ActionButton\b[^]*?>\s*(?=[<{\w])/g) ?? []);
  expect(buttons.length).toBeGreaterThan(30);
  // `needs="nothing"` says that every caller may do it. An empty list of requests is denied.
  expect(buttons.filter((button) => !/\bneeds=|\{needs\}|\boneOf=|\{oneOf\}/.test(button) || /needs=\{\[\]\}/.test(button))).toEqual([]);
});
