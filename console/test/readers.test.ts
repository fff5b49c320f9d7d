import { afterEach, describe, expect, it, vi } from 'vitest';
import { SHARED_SECRETS } from '../src/lib/kinds';
import { readReaders, rowsOfReaders } from '../src/lib/readers';
import type { SecretReaders } from '../src/lib/types';
import { unchangedSince } from '../src/lib/value-age';

const ANSWER: SecretReaders = {
  since: '2026-11-30T12:00:00Z',
  readers: [
    { via: 'Request', user: 'ada', displayName: 'Ada', accessKey: 'key-x7', accessKeyDisplayName: 'laptop', firstTime: '2026-11-30T12:10:00Z', lastTime: '2026-11-30T12:20:00Z', count: 3 },
    { via: 'Sync', object: 'p-web/db', user: 'ada', firstTime: '2026-11-30T12:30:00Z', lastTime: '2026-11-30T12:31:00Z', count: 2 },
    { via: 'Request', team: 'shop', accessKey: 'ci', lastTime: '2026-11-30T12:05:00Z', count: 1 },
    { via: 'Request', subject: 'system:x', impersonatedBy: 'admin', accessKey: 'k', lastTime: '2026-11-30T12:04:00Z', count: 1 },
  ],
};

it('shows the latest reader first, with the names that people know', () => {
  const rows = rowsOfReaders(ANSWER).map(({ who, page, via, by, keyPage, count }) => [who, page, via, by, keyPage, count]);
  expect(rows).toEqual([
    ['ada', '/users/ada', 'Sync', 'p-web/db', '', 2],
    ['Ada (ada)', '/users/ada', 'Request', 'laptop (key-x7)', '/keys/key-x7', 3],
    ['shop', '/teams/shop', 'Request', 'ci', '/keys/ci', 1],
    ['system:x', '', 'Request', 'k', '/keys/k', 1],
  ]);
  expect(rowsOfReaders({})).toEqual([]);
});

describe('readReaders', () => {
  afterEach(() => vi.unstubAllGlobals());

  function answerWith(status: number, body: unknown) {
    const fetched = vi.fn(async (_path: string) => new Response(JSON.stringify(body), { status }));
    vi.stubGlobal('fetch', fetched);
    return fetched;
  }

  it('asks for the subresource of the secret', async () => {
    const fetched = answerWith(200, ANSWER);
    expect(await readReaders(SHARED_SECRETS, 'db', 'default')).toEqual(ANSWER);
    expect(fetched.mock.calls[0]?.[0]).toBe('/kubernetes/management/apis/management.platform.sh/v1/namespaces/default/sharedsecrets/db/readers');
  });

  it('has none from an older server, and reports what else goes wrong', async () => {
    answerWith(404, { message: 'the server could not find the requested resource' });
    expect(await readReaders(SHARED_SECRETS, 'db', 'default')).toBeUndefined();
    answerWith(403, { message: 'forbidden' });
    await expect(readReaders(SHARED_SECRETS, 'db', 'default')).rejects.toMatchObject({ code: 403 });
  });
});

it('knows since when values have not changed', () => {
  const owns = (time: string, ...names: string[]) => ({ manager: 'm', time, fieldsV1: { 'f:spec': { 'f:data': { '.': {}, ...Object.fromEntries(names.map((name) => [`f:${name}`, {}])) } } } });
  const since = unchangedSince({ managedFields: [owns('2026-11-30T12:00:00Z', 'user', 'password'), owns('2026-11-29T12:00:00Z', 'password'), { manager: 'x', time: '2026-11-01T00:00:00Z', fieldsV1: { 'f:metadata': {} } }] });
  expect([...since].sort()).toEqual([['password', '2026-11-29T12:00:00Z'], ['user', '2026-11-30T12:00:00Z']]);
  expect(unchangedSince(undefined).size).toBe(0);
});
