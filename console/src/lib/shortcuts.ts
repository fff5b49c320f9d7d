// Keyboard shortcuts of the whole console. Single letters count only outside of fields.
import { texts } from '../texts';

export interface Shortcut {
  keys: string;
  text: string;
}

/** `g` and one letter go to a page. */
export const GOTO: Record<string, string> = {
  o: '/',
  s: '/secrets',
  p: '/projects',
  k: '/keys',
  v: '/virtualclusters',
  c: '/clusters',
  u: '/users',
  t: '/teams',
  w: '/why',
};

export const SHORTCUTS: Shortcut[] = [
  { keys: 'Ctrl K', text: texts.shortcuts.palette },
  { keys: '/', text: texts.shortcuts.search },
  { keys: '?', text: texts.shortcuts.help },
  { keys: 'j ↓', text: texts.shortcuts.down },
  { keys: 'k ↑', text: texts.shortcuts.up },
  { keys: 'Home End', text: texts.shortcuts.ends },
  { keys: 'Enter', text: texts.shortcuts.open },
  { keys: 'x', text: texts.shortcuts.select },
  { keys: 'n', text: texts.shortcuts.create },
  { keys: 'Esc', text: texts.shortcuts.close },
];

export const GOTO_HELP: Shortcut[] = Object.entries(GOTO).map(([letter, path]) => ({
  keys: `g ${letter}`,
  text: texts.nav[path as '/'],
}));

/** Whether a key belongs to the field that has the focus. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return !!target?.closest?.('input, textarea, select, [contenteditable]');
}

export function hasOpenDialog(): boolean {
  return document.querySelector('dialog[open]') !== null;
}
