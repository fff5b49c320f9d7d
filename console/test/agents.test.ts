import { afterEach, describe, expect, it, vi } from 'vitest';
import { keyOfAgent, newAgentKey, renewalOf } from '../src/lib/agents';
import { FakeServer } from './fake-server';

afterEach(() => vi.unstubAllGlobals());

const cluster = { name: 'east', uid: 'UID' };
const key = (changes: object = {}, metadata: object = {}) => ({
  metadata: { ...keyOfAgent(cluster).metadata, uid: 'K', resourceVersion: '7', ...metadata },
  spec: { subject: 'agent:east', ...changes },
});

describe('newAgentKey', () => {
  /** A server where the binding and a key of the name exist. */
  function server(present: object): FakeServer {
    const fake = new FakeServer();
    for (const status of [409, 409]) fake.list({ message: 'exists' }, status);
    fake.list(present);
    fake.list({});
    return fake;
  }

  it('leaves a key alone that a new cluster finds', async () => {
    const fake = server(key());
    await expect(newAgentKey(cluster, 'refuse')).rejects.toThrow('keeps its value');
    expect(fake.sent.length).toBe(2);
  });

  it('replaces the value of the key of this agent alone', async () => {
    const own = server(key());
    expect(await newAgentKey(cluster, 'replace')).not.toBe('');
    expect(own.sent.length).toBe(4);
    const other = server(key({ subject: 'ci' }));
    await expect(newAgentKey(cluster, 'replace')).rejects.toThrow('was not changed');
    expect(other.sent.length).toBe(3);
  });
});

it('renews the key that was read, and no other of its name', () => {
  expect(renewalOf(key(), cluster, 'V').body).toEqual({ metadata: { uid: 'K', resourceVersion: '7' }, spec: { key: 'V' } });
  for (const other of [key({ subject: '' }), key({}, { ownerReferences: [] }), key({}, { ownerReferences: [{ kind: 'Cluster', uid: 'older' }] })])
    expect(() => renewalOf(other, cluster, 'V')).toThrow('was not changed');
});
