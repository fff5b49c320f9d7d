import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { watch, type WatchOptions, type WatchState } from '../src/lib/watch';
import { FakeServer } from './fake-server';

let server: FakeServer;
let states: WatchState[];
let events: string[];
let told: string[];
let end: () => void = () => {};

function begin(more: Partial<WatchOptions> = {}) {
  end = watch({
    path: '/things',
    accept: 'application/json',
    from: '5',
    onEvent: (type, object) => events.push(`${type} ${(object as { metadata: { name: string } }).metadata.name}`),
    onState: (state) => states.push(state),
    onExpired: () => told.push('expired'),
    onUnauthorized: (message) => told.push(message),
    ...more,
  });
}

const added = (name: string, version: string) => ({ type: 'ADDED', object: { metadata: { name, resourceVersion: version } } });
const versions = () => server.watches.map(({ url }) => url.searchParams.get('resourceVersion'));

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
  server = new FakeServer();
  states = [];
  events = [];
  told = [];
});

afterEach(() => {
  end();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe('watch', () => {
  it('resumes from the last event or bookmark, and is no use of the session', async () => {
    server.watch([added('a', '7'), { type: 'BOOKMARK', object: { metadata: { resourceVersion: '9' } } }], 'ends');
    server.watch([added('b', '12')]);
    begin();
    await vi.waitFor(() => expect(events).toEqual(['ADDED a', 'ADDED b']));
    expect(versions()).toEqual(['5', '9']);
    expect(server.watches[0]?.headers.get('X-Postern-Background')).toBe('1');
    expect(states).toEqual(['connecting', 'live', 'connecting', 'live']);
  });

  it('connects again after a failure of the server', async () => {
    server.refuseWatch(503);
    server.watch([added('a', '7')]);
    begin();
    await vi.waitFor(() => expect(events).toEqual(['ADDED a']));
    expect(versions()).toEqual(['5', '5']);
  });

  it('says once that the version is too old, and not at once if it has just begun', async () => {
    server.watch([{ type: 'ERROR', object: { code: 410, message: 'too old' } }]);
    begin();
    await vi.waitFor(() => expect(states).toContain('live'));
    await vi.advanceTimersByTimeAsync(500);
    expect(told).toEqual([]);
    await vi.advanceTimersByTimeAsync(600);
    expect(told).toEqual(['expired']);
    expect(server.watches).toHaveLength(1);
  });

  it('does not say it after its end', async () => {
    server.refuseWatch(410);
    begin();
    await vi.waitFor(() => expect(server.watches).toHaveLength(1));
    end();
    await vi.advanceTimersByTimeAsync(5000);
    expect(told).toEqual([]);
  });

  it.each([
    ['as an event', () => server.watch([{ type: 'ERROR', object: { code: 401, message: 'access key expired' } }])],
    ['as a response', () => server.refuseWatch(401)],
  ])('stops at a 401 %s', async (_, answer) => {
    answer();
    begin();
    await vi.waitFor(() => expect(told).toHaveLength(1));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(server.watches).toHaveLength(1);
  });

  it('stops where the caller may not watch', async () => {
    server.refuseWatch(403);
    begin();
    await vi.waitFor(() => expect(states).toEqual(['connecting', 'ended']));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(server.watches).toHaveLength(1);
  });
});
