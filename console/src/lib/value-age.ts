// How old the values of a secret are. The server keeps no time for each entry, but for each manager of fields.
import type { ObjectMeta } from './types';

function fieldsOf(value: unknown, name: string): Record<string, unknown> {
  const inner = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
  return typeof inner === 'object' && inner !== null ? (inner as Record<string, unknown>) : {};
}

/**
 * For each entry, a time since which its value has not changed. A manager may have set another entry later, so that the
 * value can be older. Of two managers that own an entry, the earlier one set it.
 */
export function unchangedSince(metadata: ObjectMeta | undefined): Map<string, string> {
  const since = new Map<string, string>();
  for (const { fieldsV1, time } of metadata?.managedFields ?? []) {
    if (!time) continue;
    for (const field of Object.keys(fieldsOf(fieldsOf(fieldsV1, 'f:spec'), 'f:data'))) {
      const entry = field.startsWith('f:') ? field.slice(2) : '';
      const known = since.get(entry);
      if (entry && (known === undefined || time < known)) since.set(entry, time);
    }
  }
  return since;
}
