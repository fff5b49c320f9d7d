// The place in the console. It is the URL, through the History API.
import { BASE, isInside, pageOf, pathInConsole, urlOf, type Page } from './route';

class Router {
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
    addEventListener('click', (event) => {
      if (event.defaultPrevented || event.button !== 0) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      const link = (event.target as Element | null)?.closest?.('a');
      if (!link?.href || link.target || link.hasAttribute('download')) return;
      const url = new URL(link.href);
      if (!isInside(url, location.origin) || url.hash) return;
      event.preventDefault();
      this.go(pathInConsole(url.pathname), Object.fromEntries(url.searchParams));
    });
  }
}

export const router = new Router();

/** The href of a path below the base. */
export function href(path: string, query?: Record<string, string | undefined>): string {
  return query ? urlOf(path, query) : `${BASE}${path}`;
}
