// Differences of texts, line by line.

export interface DiffLine {
  kind: 'same' | 'added' | 'removed';
  text: string;
  /** The number of the line in the old and in the new text; 0 if it is not there. */
  old: number;
  new: number;
}

/** Above this product of changed lines, the middle is shown as removed and added as a whole. */
const MAX_CELLS = 4_000_000;

/** The lines of both texts, by a longest common subsequence. */
export function diffLines(before: string, after: string): DiffLine[] {
  const a = before.split('\n');
  const b = after.split('\n');
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const lines: DiffLine[] = [];
  const same = (i: number, j: number) => lines.push({ kind: 'same', text: a[i] ?? '', old: i + 1, new: j + 1 });
  for (let i = 0; i < start; i++) same(i, i);
  lines.push(...middle(a, b, start, a.length - end, b.length - end));
  for (let i = 0; i < end; i++) same(a.length - end + i, b.length - end + i);
  return lines;
}

function middle(a: string[], b: string[], start: number, aEnd: number, bEnd: number): DiffLine[] {
  const [rows, columns] = [aEnd - start, bEnd - start];
  const width = columns + 1;
  const lengths = rows * columns <= MAX_CELLS ? common(a, b, start, rows, columns) : undefined;
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < rows || j < columns) {
    const [old, text] = [a[start + i], b[start + j]];
    if (i < rows && j < columns && old === text && lengths) {
      lines.push({ kind: 'same', text: old ?? '', old: start + i + 1, new: start + j + 1 });
      i++;
      j++;
    } else if (i < rows && (j >= columns || !lengths || (lengths[(i + 1) * width + j] ?? 0) >= (lengths[i * width + j + 1] ?? 0))) {
      lines.push({ kind: 'removed', text: old ?? '', old: start + i + 1, new: 0 });
      i++;
    } else {
      lines.push({ kind: 'added', text: text ?? '', old: 0, new: start + j + 1 });
      j++;
    }
  }
  return lines;
}

/** The lengths of the longest common subsequences of all ends of both parts. */
function common(a: string[], b: string[], start: number, rows: number, columns: number): Uint32Array {
  const width = columns + 1;
  const lengths = new Uint32Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      lengths[i * width + j] =
        a[start + i] === b[start + j]
          ? (lengths[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(lengths[(i + 1) * width + j] ?? 0, lengths[i * width + j + 1] ?? 0);
    }
  }
  return lengths;
}

/** Whether two texts differ. */
export function isChanged(lines: DiffLine[]): boolean {
  return lines.some((line) => line.kind !== 'same');
}

/** The changed lines with some lines around them; a gap is undefined. */
export function withContext(lines: DiffLine[], context = 3): (DiffLine | undefined)[] {
  const shown = new Set<number>();
  lines.forEach((line, index) => {
    if (line.kind === 'same') return;
    for (let near = index - context; near <= index + context; near++) shown.add(near);
  });
  const result: (DiffLine | undefined)[] = [];
  lines.forEach((line, index) => {
    if (shown.has(index)) result.push(line);
    else if (result.at(-1) !== undefined || result.length === 0) result.push(undefined);
  });
  return result;
}
