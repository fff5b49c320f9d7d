// Who was sent the values of a secret.
import { ApiError, get } from './api';
import { objectPath, type Kind } from './kinds';
import type { SecretReaders } from './types';

/** A row of the card. */
export interface ReaderRow {
  id: string;
  who: string;
  /** The page of the user or team; empty if there is none. */
  page: string;
  via: 'Request' | 'Sync';
  /** The access key as people know it, or the object that the values were copied to. */
  by: string;
  /** The page of the access key; empty if there is none. */
  keyPage: string;
  impersonatedBy: string;
  first: string;
  last: string;
  count: number;
}

/** The rows of the card, the latest first. */
export function rowsOfReaders({ readers = [] }: SecretReaders): ReaderRow[] {
  const rows = readers.map((reader): ReaderRow => {
    const { via = 'Request', user = '', team = '', subject = '', impersonatedBy = '', displayName = '', accessKey = '', accessKeyDisplayName = '', object = '', firstTime = '', lastTime = '', count = 0 } = reader;
    const name = user || team || subject;
    const isCopy = via === 'Sync';
    return {
      id: JSON.stringify([via, user, team, subject, accessKey, object, impersonatedBy]),
      who: displayName && displayName !== name ? `${displayName} (${name})` : name,
      page: user ? `/users/${encodeURIComponent(user)}` : team ? `/teams/${encodeURIComponent(team)}` : '',
      via: isCopy ? 'Sync' : 'Request',
      by: isCopy ? object : accessKeyDisplayName && accessKeyDisplayName !== accessKey ? `${accessKeyDisplayName} (${accessKey})` : accessKey,
      keyPage: !isCopy && accessKey ? `/keys/${encodeURIComponent(accessKey)}` : '',
      impersonatedBy,
      first: firstTime,
      last: lastTime,
      count,
    };
  });
  return rows.sort((a, b) => b.last.localeCompare(a.last));
}

/** The readers of a secret; undefined from an older server, which does not note them. */
export async function readReaders(kind: Kind, name: string, namespace: string): Promise<SecretReaders | undefined> {
  try {
    return await get<SecretReaders>(`${objectPath(kind, name, namespace)}/readers`, { background: true });
  } catch (cause) {
    if (cause instanceof ApiError && cause.code === 404) return undefined;
    throw cause;
  }
}
