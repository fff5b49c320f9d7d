import { describe, expect, it } from 'vitest';
import { mergeObjects, withField } from '../src/lib/merge';
import { readYaml } from '../src/lib/yaml-read';
import { toYaml } from '../src/lib/yaml-text';

const team = (spec: object, version = '1') => ({ kind: 'Team', metadata: { name: 'shop', resourceVersion: version }, spec });

describe('mergeObjects', () => {
  const base = team({ displayName: 'Shop', users: ['ada'], note: 'a' });

  it('takes the changes of both sides to different fields, and the version of the server', () => {
    const merged = mergeObjects(base, team({ displayName: 'Mine', users: ['ada'], note: 'a' }), team({ displayName: 'Shop', users: ['ada', 'grace'], note: 'a' }, '2'));
    expect(merged).toEqual({ object: team({ displayName: 'Mine', users: ['ada', 'grace'], note: 'a' }, '2'), conflicts: [] });
  });

  it('names a field that both sides changed', () => {
    const { object, conflicts } = mergeObjects(base, team({ displayName: 'Mine', users: ['ada'] }), team({ displayName: 'Other', users: ['ada'], note: 'a' }, '2'));
    expect(conflicts).toEqual([{ path: ['spec', 'displayName'], own: 'Mine', current: 'Other' }]);
    expect(object).toEqual(team({ displayName: 'Other', users: ['ada'] }, '2'));
  });

  it('never mixes two changes of one list', () => {
    const { conflicts } = mergeObjects(base, team({ ...base.spec, users: ['ada', 'eve'] }), team({ ...base.spec, users: ['ada', 'grace'] }, '2'));
    expect(conflicts).toEqual([{ path: ['spec', 'users'], own: ['ada', 'eve'], current: ['ada', 'grace'] }]);
  });

  it('finds no conflict in two lines of one map, where lines would have one', () => {
    const data = (values: object) => team({ data: values });
    const merged = mergeObjects(data({ a: '1', b: '2' }), data({ a: '9', b: '2' }), data({ a: '1', b: '8' }));
    expect(merged).toEqual({ object: data({ a: '9', b: '8' }), conflicts: [] });
  });

  it('keeps a field that one side removed and the other changed as a conflict', () => {
    const { conflicts } = mergeObjects(base, team({ users: ['ada'], note: 'a' }), team({ ...base.spec, displayName: 'Other' }, '2'));
    expect(conflicts).toEqual([{ path: ['spec', 'displayName'], own: undefined, current: 'Other' }]);
  });

  it('merges finalizers entry by entry', () => {
    const of = (finalizers: string[]) => ({ metadata: { finalizers } });
    expect(mergeObjects(of(['a', 'b']), of(['a', 'b', 'c']), of(['b', 'd'])).object).toEqual(of(['b', 'd', 'c']));
  });
});

it('sets and removes one field', () => {
  expect(withField({ spec: { a: 1, b: 2 } }, ['spec', 'a'], undefined)).toEqual({ spec: { b: 2 } });
  expect(withField({}, ['spec', 'a'], [1])).toEqual({ spec: { a: [1] } });
});

describe('readYaml', () => {
  it('reads a uid that begins with digits as a text', () => {
    expect(readYaml('uid: 76485820-6491-4cab-9d91-2472658339a4\n')).toEqual({ uid: '76485820-6491-4cab-9d91-2472658339a4' });
    expect(() => readYaml('a: 2026-11-30\n')).toThrow('without quotes');
  });

  it('reads what the server writes', () => {
    const text = `apiVersion: management.platform.sh/v1
kind: SharedSecret
metadata:
  annotations:
    "a: b": 'it''s'
    note: |
      two
        lines
  creationTimestamp: "2026-11-30T07:18:13Z"
  generation: 2
  name: db
spec:
  access:
  - name: read
    users:
    - reader
    - "*"
    verbs: [get, "list", 'watch']
  - {}
  data: {a: YQ==, "b": Yg==}
  disabled: false
  displayName: ""
  nothing: null
  empty:
  owner: # who
    user: ada  # the owner
  ratio: -1.5
  url: https://example.com/a#b
  odd: "\\L\\a\\x41\\u00fc\\"\\\\n"
status: {}
`;
    expect(readYaml(text)).toEqual({
      apiVersion: 'management.platform.sh/v1',
      kind: 'SharedSecret',
      metadata: { annotations: { 'a: b': "it's", note: 'two\n  lines\n' }, creationTimestamp: '2026-11-30T07:18:13Z', generation: 2, name: 'db' },
      spec: {
        access: [{ name: 'read', users: ['reader', '*'], verbs: ['get', 'list', 'watch'] }, {}],
        data: { a: 'YQ==', b: 'Yg==' },
        disabled: false,
        displayName: '',
        nothing: null,
        empty: null,
        owner: { user: 'ada' },
        ratio: -1.5,
        url: 'https://example.com/a#b',
        odd: '\u2028\x07A\u00fc"\\n',
      },
      status: {},
    });
  });

  it.each([
    'a: &x b', 'a: *x', 'a: !!str b', 'a: >\n  folded', 'a: yes', 'a: On', 'a: 0777', 'a: 0x1f', 'a: 2026-01-01', 'a: 1e3', 'a: 12:30', 'a: +1', 'a: .5',
    'a: "two\n  lines"', 'a: two\n  lines', 'a: [b,\n  c]', 'a: b\na: c', 'a: b\n   c: d', '\ta: b', 'a: "\\y"', 'a: "\\xZZ"', '? a\n: b', 'yes: b', 'a: b: c', '- a\nb: c',
    'a: True', 'a: [b] c', '1: a', 'a: 123456789012345678901', 'a: 18446744073709551616', 'a: -9223372036854775809', 'a: 1.10', 'a: 1.0', 'a: -0',
    'a: 0.12345678901234567890', 'a: |\n', 'a: |\n  b\n     \nc: d', 'a: |2\n b', 'a: |0\n  b',
  ])('refuses %j, which is read in more than one way', (text) => expect(() => readYaml(text)).toThrow(/^line \d/));

  it.each([
    ['a: |+\n  b\n', 'b\n'],
    ['a: |+\n  b\n\n', 'b\n\n'],
    ['a: |+\n  b\n\n\nc: d\n', 'b\n\n\n'],
    ['a: |+\n  b', 'b'],
    ['a: |\n  b', 'b'],
    ['a: |\n  b\n\n\nc: d\n', 'b\n'],
    ['a: |-\n  b\n\n', 'b'],
    ['a: |\n\n  b\n   c\n', '\nb\n c\n'],
    ['a: |2-\n   b\n  c\n', ' b\nc'],
    ['a: |\n  b\n  ', 'b\n'],
  ])('keeps the line ends of %j', (text, value) => expect(readYaml(text)).toMatchObject({ a: value }));

  it.each(['9007199254740993', '-9007199254740993', '9223372036854775807', '18446744073709551615', '9007199254740991', '-1.5', '0', '100000'])('keeps the number %s', (text) => {
    expect(toYaml(readYaml(`a: ${text}`))).toBe(`a: ${text}\n`);
    expect(toYaml(readYaml(`a: [${text}]`))).toBe(`a: [${text}]\n`);
  });

  it('sees a change of a great number', () => {
    const of = (text: string) => readYaml(`spec:\n  a: ${text}\n  b: 1`);
    const { object, conflicts } = mergeObjects(of('9007199254740993'), of('9007199254740993'), of('9007199254740992'));
    expect([toYaml(object), conflicts]).toEqual(['spec:\n  a: 9007199254740992\n  b: 1\n', []]);
  });

  it('reads back what the console writes', () => {
    const texts = ['', 'a', 'true', 'Yes', 'null', '~', '1', '-1', '1.5', '0x1', '2026-01-01', 'a: b', 'a #b', '- a', ' a ', 'a\nb\n', '"', "'", '\t', '{', '[a]', '&a', '*', 'a:', ':a', '#', 'ü', '\u2028', '1e5', '.', '-'];
    const object = { texts, map: Object.fromEntries(texts.filter(Boolean).map((text) => [text, text])), deep: [[1, [true, null]], { a: [], b: {}, c: [{ d: 'e', f: [{ g: 1 }] }] }] };
    expect(readYaml(toYaml(object))).toEqual(object);
  });
});
