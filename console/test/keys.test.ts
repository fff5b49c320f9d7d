import { describe, expect, it } from 'vitest';
import { newKeyValue, withChecksum } from '../src/lib/key-value';
import { endOf, successorOf, ttlForOverlap } from '../src/lib/keys';

it('has the checksum of the test vector', () => {
  const [id, secret] = ['01234567', '89ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno'];
  expect(withChecksum(id, secret)).toBe(`pst_${id}_${secret}_2dbcmK`);
});

it('makes values of the right form that differ', () => {
  const values = new Set(Array.from({ length: 50 }, newKeyValue));
  expect(values.size).toBe(50);
  for (const value of values) expect(value).toMatch(/^pst_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/);
});

const key = (spec: object, lastActivity?: string) => ({
  metadata: {
    name: 'ci',
    creationTimestamp: '1970-01-01T00:16:40Z',
    ownerReferences: [
      { apiVersion: 'v1', kind: 'User', name: 'ada', uid: 'u', blockOwnerDeletion: true },
      { apiVersion: 'v1', kind: 'OwnedAccessKey', name: 'maker', uid: 'm', blockOwnerDeletion: true },
    ],
  },
  spec,
  status: lastActivity ? { lastActivity } : {},
});

describe('endOf', () => {
  it('counts from the creation, or from the last use', () => {
    expect(endOf(key({}))).toBeUndefined();
    expect(endOf(key({ ttl: 100 }))).toBe(1_100_000);
    expect(endOf(key({ ttl: 100, ttlAfterLastActivity: true }, '1970-01-01T00:25:00Z'))).toBe(1_600_000);
  });
});

describe('ttlForOverlap', () => {
  it.each([
    [{}, undefined, 1100],
    [{ ttl: 5000 }, undefined, 1100],
    [{ ttl: 1100 }, undefined, undefined],
    [{ ttl: 1000 }, undefined, undefined],
    [{ ttl: 550, ttlAfterLastActivity: true }, '1970-01-01T00:25:00Z', 1100],
    [{ ttl: 400, ttlAfterLastActivity: true }, '1970-01-01T00:25:00Z', undefined],
  ])('%j with last use %s is %s', (spec, lastActivity, ttl) => {
    expect(ttlForOverlap(key(spec, lastActivity), 2_000_000, 100)).toBe(ttl);
  });
});

it('makes a successor that ends with the maker of the key', () => {
  const maker = { apiVersion: 'management.platform.sh/v1', kind: 'OwnedAccessKey', name: 'laptop', uid: 'l' };
  const status = { maker: { name: 'laptop', uid: 'l' } };
  const successor = successorOf({ metadata: { name: 'ci' }, spec: { user: 'ada' }, status });
  expect(successor.metadata).toEqual({ generateName: 'ci-', ownerReferences: [maker] });
  const shown = successorOf({ metadata: { name: 'ci', ownerReferences: [maker] }, spec: { user: 'ada' }, status });
  expect(shown.metadata?.ownerReferences).toEqual([maker]);
});

it('makes a successor that gives the same access and ends with the same key', () => {
  const successor = successorOf(key({ user: 'ada', ttl: 5, scope: { allowPlatformCli: true }, key: 'secret', disabled: false }));
  expect(successor.metadata).toEqual({
    generateName: 'ci-',
    ownerReferences: [{ apiVersion: 'v1', kind: 'OwnedAccessKey', name: 'maker', uid: 'm' }],
  });
  expect(successor.spec).toEqual({ user: 'ada', ttl: 5, scope: { allowPlatformCli: true } });
});
