import { describe, expect, it } from 'vitest';
import { KINDS, pagePath } from '../src/lib/kinds';
import { isInside, pageOf, pathInConsole, sectionOf, urlOf } from '../src/lib/route';

describe('pathInConsole', () => {
  it.each([
    ['/ui/', '/'],
    ['/ui', '/'],
    ['/ui/secrets', '/secrets'],
    ['/ui/secrets/', '/secrets'],
    ['/uix/secrets', '/'],
  ])('%s is %s', (pathname, path) => expect(pathInConsole(pathname)).toBe(path));
});

describe('pageOf', () => {
  it.each(['/nothing', '/secrets/a', '/secrets/a/b/c', '/clusters/a/b', '/clusters//', '/secrets/%E0%A4%A/x'])('does not know %s', (path) =>
    expect(pageOf(path)).toEqual({ name: 'missing' }),
  );

  it('finds the page of every object that pagePath names', () => {
    for (const kind of KINDS) {
      for (const name of ['db', 'a.b-c', 'per%cent', 'a/b', 'ünï']) {
        const namespace = kind.namespaced ? 'p-web' : undefined;
        expect(pageOf(pagePath(kind, name, namespace))).toEqual({ name: 'detail', kind, namespace, object: name });
      }
      expect(pageOf(kind.route)).toEqual({ name: 'list', kind });
    }
  });
});

describe('urlOf', () => {
  it('leaves out empty parameters and encodes the others', () => {
    expect(urlOf('/secrets', { ns: '', q: 'a b&c', sort: undefined })).toBe('/ui/secrets?q=a+b%26c');
  });
});

it('stays in the console only for its own paths', () => {
  const origin = 'https://localhost:8443';
  expect(isInside(new URL('/ui/keys', origin), origin)).toBe(true);
  expect(isInside(new URL('/kubernetes/cluster/east/ui/', origin), origin)).toBe(false);
  expect(isInside(new URL('https://example.com/ui/'), origin)).toBe(false);
});

it('marks the section of a detail page', () => {
  expect(sectionOf('/secrets/platform/db')).toBe('/secrets');
  expect(sectionOf('/')).toBe('/');
});
