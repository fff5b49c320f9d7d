// Parts of the console that are loaded when they are first shown: pages, forms and dialogs.
import { send } from './api';
import { failureOf } from './failure';
import { isAway, waitFor } from './retry';

class Parts {
  /** Why a part is not here: the server is away, or it has a newer console without that file. */
  trouble: 'away' | 'newer' | undefined = $state();

  /** Loads a part, and tries again while the server is away. Undefined if it is not wanted any more, or will not come. */
  async load<T>(loader: () => Promise<{ default: T }>, signal: AbortSignal): Promise<T | undefined> {
    let hasAsked = false;
    for (let attempt = 0; !signal.aborted; attempt++) {
      try {
        const part = (await loader()).default;
        this.trouble = undefined;
        return part;
      } catch {
        // The browser does not say why.
      }
      if (signal.aborted) break;
      if (await isServerAway()) {
        this.trouble = 'away';
        await waitFor(attempt, signal);
        await repairStyles();
      } else if (hasAsked) {
        this.trouble = 'newer';
        return undefined;
      } else {
        hasAsked = true;
      }
    }
    return undefined;
  }
}

/** Whether the server does not answer. Its version needs no session. */
async function isServerAway(): Promise<boolean> {
  try {
    await send('GET', '/version', { background: true });
    return false;
  } catch (cause) {
    return isAway(failureOf(cause));
  }
}

/** Loads style sheets again that did not arrive. The build asks for each of them once. */
async function repairStyles(): Promise<void> {
  const broken = [...document.querySelectorAll<HTMLLinkElement>('link[rel=stylesheet]')].filter((link) => !link.sheet);
  await Promise.all(
    broken.map(
      (link) =>
        new Promise<void>((resolve) => {
          const again = link.cloneNode() as HTMLLinkElement;
          again.onload = again.onerror = () => resolve();
          link.replaceWith(again);
        }),
    ),
  );
}

export const parts = new Parts();
