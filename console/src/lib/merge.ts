// Merges two changes of one object by its fields, as a server-side apply does: maps by their fields, and lists as a whole.

export interface Conflict {
  path: string[];
  /** The values; undefined where the field is absent. */
  own: unknown;
  current: unknown;
}

export interface Merged {
  object: unknown;
  /** The fields that both sides changed, to different values. `object` has those of the server. */
  conflicts: Conflict[];
}

type Fields = Record<string, unknown>;

/** Lists that are sets: each entry by itself is added or removed. */
const SETS = ['metadata.finalizers', 'spec.keyThumbprints'];
/** Fields that the server alone writes. */
const OF_SERVER = ['resourceVersion', 'generation', 'managedFields', 'uid', 'creationTimestamp'];

const isMap = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value);

export function isEqual(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((each, index) => isEqual(each, b[index]));
  if (!isMap(a) || !isMap(b)) return a === b;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && isEqual(a[name], b[name]));
}

function mergeSet(base: unknown, own: unknown[], current: unknown[]): unknown[] {
  const before = Array.isArray(base) ? base : [];
  return [...current.filter((each) => own.includes(each) || !before.includes(each)), ...own.filter((each) => !before.includes(each) && !current.includes(each))];
}

function mergeValue(path: string[], base: unknown, own: unknown, current: unknown, conflicts: Conflict[]): unknown {
  if (isEqual(own, base) || isEqual(own, current)) return current;
  if (isEqual(current, base)) return own;
  if (isMap(own) && isMap(current)) return mergeMaps(path, isMap(base) ? base : {}, own, current, conflicts);
  if (SETS.includes(path.join('.')) && Array.isArray(own) && Array.isArray(current)) return mergeSet(base, own, current);
  conflicts.push({ path, own, current });
  return current;
}

/** A field of an object itself. A label may have the name of something that every object inherits. */
function at(fields: Fields, name: string): Fields[string] | undefined {
  return Object.hasOwn(fields, name) ? fields[name] : undefined;
}

function mergeMaps(path: string[], base: Fields, own: Fields, current: Fields, conflicts: Conflict[]): Fields {
  const merged: Fields = {};
  for (const name of new Set([...Object.keys(current), ...Object.keys(own)])) {
    const value = mergeValue([...path, name], at(base, name), at(own, name), at(current, name), conflicts);
    if (value !== undefined) merged[name] = value;
  }
  return merged;
}

/** The object with the fields that the server writes as they are in `current`. */
function withServerFields(object: Fields, current: Fields): Fields {
  const { status: _, ...rest } = object;
  const [metadata, now] = [isMap(object.metadata) ? { ...object.metadata } : {}, isMap(current.metadata) ? current.metadata : {}];
  for (const name of OF_SERVER) {
    delete metadata[name];
    if (name in now) metadata[name] = now[name];
  }
  return { ...rest, metadata, ...('status' in current ? { status: current.status } : {}) };
}

/** Merges the changes of `own` and of `current`, which both came from `base`. */
export function mergeObjects(base: unknown, own: unknown, current: unknown): Merged {
  if (!isMap(base) || !isMap(own) || !isMap(current)) throw new Error('the text is no object');
  const conflicts: Conflict[] = [];
  const object = mergeMaps([], withServerFields(base, current), withServerFields(own, current), current, conflicts);
  return { object, conflicts };
}

/** The object with another value for one field; undefined removes the field. */
export function withField(object: unknown, [first, ...rest]: string[], value: unknown): unknown {
  if (first === undefined) return value;
  const fields = isMap(object) ? { ...object } : {};
  const inner = withField(fields[first], rest, value);
  if (inner === undefined) delete fields[first];
  else fields[first] = inner;
  return fields;
}
