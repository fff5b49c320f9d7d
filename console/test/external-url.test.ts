import { beforeEach, expect, it, vi } from 'vitest';
import { FakeServer } from './fake-server';

let server: FakeServer;

beforeEach(() => {
  vi.resetModules();
  vi.stubGlobal('location', { origin: 'https://127.0.0.1:8443' });
  server = new FakeServer();
});

/** The module as a page that was loaded now has it. */
const load = async () => (await import('../src/lib/external-url')).externalUrl;

it('is what the server says, and is asked for once', async () => {
  server.list({ methods: [], externalUrl: 'https://postern.example.com/base/' });
  const externalUrl = await load();
  expect(await externalUrl()).toBe('https://postern.example.com/base');
  expect(await externalUrl()).toBe('https://postern.example.com/base');
  expect(server.sent.map(({ url }) => url.pathname)).toEqual(['/auth/methods']);
});

it('is the address of the page if the server names none', async () => {
  server.list({ methods: [] });
  expect(await (await load())()).toBe('https://127.0.0.1:8443');
});

it('is asked for again after a failure', async () => {
  server.list({ message: 'too many requests' }, 429);
  server.list({ externalUrl: 'https://postern.example.com' });
  const externalUrl = await load();
  expect(await externalUrl()).toBe('https://127.0.0.1:8443');
  expect(await externalUrl()).toBe('https://postern.example.com');
});
