// Short messages about what happened. They leave by themselves; errors stay until they are dismissed.

export interface Toast {
  id: number;
  text: string;
  detail: string;
  isError: boolean;
}

class Toasts {
  list: Toast[] = $state([]);
  #next = 1;

  say(text: string, detail = ''): void {
    this.#add(text, detail, false);
  }

  fail(text: string, detail = ''): void {
    this.#add(text, detail, true);
  }

  dismiss(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }

  #add(text: string, detail: string, isError: boolean): void {
    const id = this.#next++;
    this.list = [...this.list.slice(-3), { id, text, detail, isError }];
    if (!isError) setTimeout(() => this.dismiss(id), 6000);
  }
}

export const toasts = new Toasts();
