// Light, dark, or as the system says. Only this choice is kept in the browser.

export type Theme = 'system' | 'light' | 'dark';
const KEY = 'postern-theme';

class ThemeChoice {
  value: Theme = $state('system');

  start(): void {
    const kept = localStorage.getItem(KEY);
    if (kept === 'light' || kept === 'dark') this.value = kept;
    this.#apply();
  }

  choose(theme: Theme): void {
    this.value = theme;
    if (theme === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
    this.#apply();
  }

  #apply(): void {
    if (this.value === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.value;
  }
}

export const theme = new ThemeChoice();
