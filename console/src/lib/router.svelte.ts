// The place in the console. It is the URL, through the History API.
import { texts } from '../texts';
import { BASE, isInside, pageOf, pathInConsole, urlOf, type Page } from './route';

class Router {
  /** Editors with changes that are not saved. Leaving the page asks first. */
  readonly unsaved = new Set<symbol>();
  path = $state(pathInConsole(location.pathname));
  query = $state(new URLSearchParams(location.search));
  readonly page: Page = $derived(pageOf(this.path));

  /** A parameter of the URL, or the empty text. */
  param(name: string): string {
    return this.query.get(name) ?? '';
  }

  /** Goes to a path below the base. */
  go(path: string, query: Record<string, string | undefined> = {}, replace = false): void {
    const url = urlOf(path, query);
    if (replace) history.replaceState(null, '', url);
    else history.pushState(null, '', url);
    this.read();
    if (!replace) scrollTo(0, 0);
  }

  /** Changes parameters of the URL, and keeps the others. No new entry of the history. */
  set(changes: Record<string, string | undefined>): void {
    const query = Object.fromEntries(this.query);
    this.go(this.path, { ...query, ...changes }, true);
  }

  read(): void {
    this.path = pathInConsole(location.pathname);
    this.query = new URLSearchParams(location.search);
  }

  /** Follows the clicks on links and the buttons of the browser. */
  start(): void {
    addEventListener('popstate', () => this.read());
    addEventListener('beforeunload', (event) => {
      if (this.unsaved.size > 0) event.preventDefault();
    });
    addEventListener('click', (event) => {
      if (event.defaultPrevented || event.button !== 0) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      const link = (event.target as Element | null)?.closest?.('a');
      if (!link?.href || link.target || link.hasAttribute('download')) return;
      const url = new URL(link.href);
      if (!isInside(url, location.origin) || url.hash) return;
      event.preventDefault();
      if (this.unsaved.size > 0 && !confirm(texts.action.leave)) return;
      this.unsaved.clear();
      this.go(pathInConsole(url.pathname), Object.fromEntries(url.searchParams));
    });
  }
}

export const router = new Router();

/** The href of a path below the base. */
export function href(path: string, query?: Record<string, string | undefined>): string {
  return query ? urlOf(path, query) : `${BASE}${path}`;
}

/** Says that an editor has changes that are not saved, until the returned function is called. */
export function markUnsaved(): () => void {
  const mark = Symbol('unsaved');
  router.unsaved.add(mark);
  return () => router.unsaved.delete(mark);
}
