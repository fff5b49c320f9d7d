import { describe, expect, it } from 'vitest';
import { timeOf, withKeyColumns } from '../src/lib/key-columns';
import { stateOf } from '../src/lib/keys';
import type { Column, Row } from '../src/lib/row-store';

const columns = (...names: string[]): Column[] => names.map((name) => ({ name, type: 'string', description: '' }));
const row = (...cells: Row['cells']): Row => ({
  key: 'ci', name: 'ci', namespace: '', uid: 'u', version: 1, created: '2026-03-01T00:00:00Z', changed: '', ending: false, cells,
});
const NOW = Date.parse('2026-03-01T01:00:00Z');

describe('withKeyColumns', () => {
  const old = withKeyColumns(columns('Name', 'Enabled', 'Last Activity', 'TTL Seconds'), () => NOW);
  const shown = (...cells: Row['cells']) => old.adapt(row(...cells)).cells.slice(4);

  it('makes the columns of keys from those of an older server', () => {
    expect(old.columns.slice(4).map((column) => column.name)).toEqual(['Status', 'Expires', 'Last Used']);
    expect(shown('ci', 'true', '5m', 7200)).toEqual(['Active', '2026-03-01T02:00:00.000Z', '5m']);
    expect(shown('ci', 'true', '<never>', 1800)).toEqual(['Expired', '2026-03-01T00:30:00.000Z', '<never>']);
    expect(shown('ci', 'false', null, 0)).toEqual(['Disabled', 'never', null]);
  });

  it('leaves what a server sends, and other kinds', () => {
    for (const names of [['Name', 'Status', 'Expires', 'Last Used', 'TTL Seconds'], ['Name', 'Enabled']]) {
      const adaption = withKeyColumns(columns(...names));
      const one = row('ci');
      expect(adaption.columns.map((column) => column.name)).toEqual(names);
      expect(adaption.adapt(one)).toBe(one);
    }
  });
});

it('reads times, and nothing else', () => {
  expect(timeOf('2026-03-01T01:00:00Z')).toBe(NOW);
  for (const cell of ['never', '<never>', '2026', '', 7, null, undefined]) expect(timeOf(cell)).toBeUndefined();
});

describe('stateOf', () => {
  const key = (spec: object, status: object = {}) => ({ metadata: { creationTimestamp: '2026-03-01T00:00:00Z' }, spec, status });

  it.each([
    [{}, {}, 'Active'],
    [{ ttl: 3600 }, {}, 'Expired'],
    [{ ttl: 3601 }, {}, 'Active'],
    [{ ttl: 600, ttlAfterLastActivity: true }, { lastActivity: '2026-03-01T00:55:00Z' }, 'Active'],
    [{ disabled: true }, {}, 'Disabled'],
    [{}, { state: 'OwnerDisabled' }, 'OwnerDisabled'],
    [{ ttl: 3600 }, { state: 'Active' }, 'Expired'],
    [{ disabled: true }, { state: 'MakerEnded' }, 'MakerEnded'],
  ])('%j with %j is %s', (spec, status, state) => expect(stateOf(key(spec, status), NOW)).toBe(state));
});
