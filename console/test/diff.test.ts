import { describe, expect, it } from 'vitest';
import { diffLines, isChanged, withContext } from '../src/lib/diff';

const marks = (before: string, after: string) =>
  diffLines(before, after).map(({ kind, text }) => `${kind === 'same' ? ' ' : kind === 'added' ? '+' : '-'}${text}`);

describe('diffLines', () => {
  it('keeps the lines that both texts have', () => {
    expect(marks('a\nb\nc\nd', 'a\nx\nc\nd\ne')).toEqual([' a', '-b', '+x', ' c', ' d', '+e']);
  });

  it('finds no change in equal texts', () => {
    expect(isChanged(diffLines('a\nb', 'a\nb'))).toBe(false);
  });

  it('rebuilds both texts from every pair of small texts', () => {
    const texts: string[] = [];
    const letters = ['a', 'b', ''];
    for (const x of letters) for (const y of letters) for (const z of letters) texts.push([x, y, z].join('\n'), [x, y].join('\n'));
    for (const before of texts) {
      for (const after of texts) {
        const lines = diffLines(before, after);
        expect(lines.filter((line) => line.kind !== 'added').map((line) => line.text).join('\n')).toBe(before);
        expect(lines.filter((line) => line.kind !== 'removed').map((line) => line.text).join('\n')).toBe(after);
      }
    }
  });

  it('numbers the lines of both texts', () => {
    expect(diffLines('a\nb', 'b')).toEqual([
      { kind: 'removed', text: 'a', old: 1, new: 0 },
      { kind: 'same', text: 'b', old: 2, new: 1 },
    ]);
  });
});

describe('withContext', () => {
  it('leaves out the lines that are far from a change', () => {
    const before = Array.from({ length: 20 }, (_, at) => `line ${at}`).join('\n');
    const lines = withContext(diffLines(before, before.replace('line 10', 'new')), 1);
    expect(lines.map((line) => line?.text)).toEqual([undefined, 'line 9', 'line 10', 'new', 'line 11', undefined]);
  });
});
