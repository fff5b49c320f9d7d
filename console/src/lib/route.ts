// What a URL of the console means. No state here: see router.svelte.ts.
import { kindOfRoute, type Kind } from './kinds';

/** The path under which the console is served. */
export const BASE = '/ui';

export type Page =
  | { name: 'overview' | 'login' | 'tokens' | 'why' | 'roles' | 'sessions' | 'consent' | 'missing' }
  | { name: 'list'; kind: Kind }
  | { name: 'detail'; kind: Kind; namespace: string | undefined; object: string };

const SINGLE: Record<string, 'overview' | 'login' | 'tokens' | 'why' | 'roles' | 'sessions' | 'consent'> = {
  '/': 'overview',
  '/login': 'login',
  '/endpoint-tokens': 'tokens',
  '/why': 'why',
  '/roles': 'roles',
  '/sessions': 'sessions',
  '/authorize': 'consent',
  '/device': 'consent',
};

/** The path below the base, always with one slash at its start and none at its end. */
export function pathInConsole(pathname: string): string {
  const inner = pathname.startsWith(`${BASE}/`) ? pathname.slice(BASE.length) : '/';
  return inner.length > 1 ? inner.replace(/\/+$/, '') || '/' : '/';
}

function decoded(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}

/** The page of a path below the base. */
export function pageOf(path: string): Page {
  const single = SINGLE[path];
  if (single) return { name: single };
  const [, first = '', ...rest] = path.split('/');
  const kind = kindOfRoute(`/${first}`);
  const parts = rest.map(decoded);
  if (!kind || parts.some((part) => part === undefined || part === '')) return { name: 'missing' };
  if (parts.length === 0) return { name: 'list', kind };
  if (kind.namespaced) {
    const [namespace, object] = parts;
    if (parts.length === 2 && namespace && object) return { name: 'detail', kind, namespace, object };
  } else if (parts.length === 1 && parts[0]) {
    return { name: 'detail', kind, namespace: undefined, object: parts[0] };
  }
  return { name: 'missing' };
}

/** The URL of a path below the base, with the parameters that have a value. */
export function urlOf(path: string, query: Record<string, string | undefined> = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) params.set(name, value);
  const text = params.toString();
  return `${BASE}${path}${text ? `?${text}` : ''}`;
}

/** Whether a click on a link should stay in the page. */
export function isInside(url: URL, origin: string): boolean {
  return url.origin === origin && (url.pathname === BASE || url.pathname.startsWith(`${BASE}/`));
}

/** The section of the navigation that a path belongs to. */
export function sectionOf(path: string): string {
  const [, first = ''] = path.split('/');
  return first ? `/${first}` : '/';
}

