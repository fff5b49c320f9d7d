import { describe, expect, it } from 'vitest';
import { RowStore, compareCells, rowsOf, type Row } from '../src/lib/row-store';

const row = (name: string, version: number, cells: Row['cells'] = [name]): Row => ({
  key: name,
  name,
  namespace: '',
  uid: name,
  version,
  created: `2026-01-01T00:00:${String(version).padStart(2, '0')}Z`,
  changed: '',
  ending: false,
  cells,
});
const names = (store: RowStore) => store.found().map((each) => each.name);

function store(...rows: Row[]): RowStore {
  const made = new RowStore();
  made.columns = [
    { name: 'Name', type: 'string', description: '' },
    { name: 'Keys', type: 'integer', description: '' },
  ];
  made.addPage(rows);
  return made;
}

describe('RowStore', () => {
  it('shows rows by their keys', () => {
    expect(names(store(row('b', 1), row('a', 2)))).toEqual(['a', 'b']);
  });

  it('shows the last write first, whichever object it was', () => {
    const made = store(row('a', 900), row('b', 1000), row('c', 20));
    made.show({ sort: 'Changed', descending: true, search: '' });
    expect(names(made)).toEqual(['b', 'a', 'c']);
  });

  it('knows the last change by the managers of fields, or else the creation', () => {
    const of = (metadata: object) => rowsOf({ rows: [{ cells: [], object: { metadata: { name: 'a', creationTimestamp: '2026-01-01T00:00:00Z', ...metadata } } }] })[0]?.changed;
    expect(of({ managedFields: [{ time: '2026-01-03T00:00:00Z' }, { time: '2026-01-02T00:00:00Z' }, {}] })).toBe('2026-01-03T00:00:00Z');
    expect(of({})).toBe('2026-01-01T00:00:00Z');
  });

  it('keeps a change that is newer than a page that arrives later', () => {
    const made = store(row('a', 1));
    made.apply('MODIFIED', row('b', 9, ['new']));
    made.addPage([row('b', 2, ['old'])]);
    expect(made.found().find((each) => each.name === 'b')?.cells).toEqual(['new']);
  });

  it('does not bring back a row that was deleted before its page arrived', () => {
    const made = store(row('a', 1));
    made.apply('DELETED', row('b', 9));
    made.addPage([row('b', 2)]);
    expect(names(made)).toEqual(['a']);
  });

  it('shows a row that was created again after its deletion', () => {
    const made = store(row('a', 1));
    made.apply('DELETED', row('a', 2));
    made.apply('ADDED', row('a', 3));
    expect(names(made)).toEqual(['a']);
  });

  it('ignores an event that is older than the row', () => {
    const made = store(row('a', 5, ['new']));
    made.apply('MODIFIED', row('a', 4, ['old']));
    expect(made.found()[0]?.cells).toEqual(['new']);
  });

  it('drops rows that a new list does not have', () => {
    const made = store(row('a', 1), row('b', 1));
    made.replace([row('b', 2), row('c', 3)]);
    expect(names(made)).toEqual(['b', 'c']);
  });

  it('finds rows that have every word, in any case', () => {
    const made = store(row('db', 1, ['db', 3]), row('dbx', 1, ['dbx', 4]));
    made.show({ sort: '', descending: false, search: 'DB 4' });
    expect(names(made)).toEqual(['dbx']);
    expect(made.size).toBe(2);
  });

  it('filters by one cell', () => {
    const made = store(row('a', 1, ['a', 3]), row('b', 1, ['b', 4]));
    made.show({ sort: '', descending: false, search: '', only: { column: 'Keys', values: ['4', '5'] } });
    expect(names(made)).toEqual(['b']);
  });

  it('leaves out rows by one cell, and those whose time is outside of a range', () => {
    const at = (name: string, time: string) => row(name, 1, [name, time]);
    const made = store(at('a', '2026-01-01T00:00:00Z'), at('b', '2026-01-02T00:00:00Z'), at('c', 'never'));
    made.show({ sort: '', descending: false, search: '', except: { column: 'Name', values: ['a'] } });
    expect(names(made)).toEqual(['b', 'c']);
    const [from, to] = [Date.parse('2026-01-01T12:00:00Z'), Date.parse('2026-01-03T00:00:00Z')];
    made.show({ sort: '', descending: false, search: '', within: { column: 'Keys', from, to } });
    expect(names(made)).toEqual(['b']);
  });

  it('sorts times, with those without one last, and the latest use first', () => {
    const made = new RowStore();
    made.columns = ['Expires', 'Last Used'].map((name) => ({ name, type: 'string', description: '' }));
    const [first, second] = ['2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'];
    made.addPage([row('a', 1, ['never', first]), row('b', 1, [second, '<never>']), row('c', 1, [first, second])]);
    made.show({ sort: 'Expires', descending: false, search: '' });
    expect(names(made)).toEqual(['c', 'b', 'a']);
    made.show({ sort: 'Last Used', descending: false, search: '' });
    expect(names(made)).toEqual(['c', 'a', 'b']);
  });

  it('sorts numbers by value, and reverses', () => {
    const made = store(row('a', 1, ['a', 10]), row('b', 1, ['b', 9]), row('c', 1, ['c', 100]));
    made.show({ sort: 'Keys', descending: false, search: '' });
    expect(names(made)).toEqual(['b', 'a', 'c']);
    made.show({ sort: 'Keys', descending: true, search: '' });
    expect(names(made)).toEqual(['c', 'a', 'b']);
  });

  it('sorts by age: the youngest first', () => {
    const made = store(row('a', 1), row('b', 3), row('c', 2));
    made.show({ sort: 'Age', descending: false, search: '' });
    expect(names(made)).toEqual(['b', 'c', 'a']);
  });
});

describe('compareCells', () => {
  it('orders durations by length, and empty cells last', () => {
    const cells = ['', '2d', '90s', '3h', '<never>'];
    expect(cells.sort(compareCells)).toEqual(['90s', '3h', '2d', '<never>', '']);
  });
});

describe('rowsOf', () => {
  it('leaves out the row of a bookmark, which has no name', () => {
    expect(rowsOf({ rows: [{ cells: [''], object: { metadata: { resourceVersion: '5' } } }] })).toEqual([]);
  });
});
