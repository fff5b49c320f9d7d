// Small helpers for the keyboard.

/** Puts the focus on an element when it appears. */
export function focusFirst(node: HTMLElement): void {
  requestAnimationFrame(() => node.focus());
}

/** Copies text, and returns whether the browser let it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
