// The current time for ages. It moves once a second while a page shows it.
import { createSubscriber } from 'svelte/reactivity';

class Clock {
  #now = Date.now();
  #subscribe = createSubscriber((update) => {
    const timer = setInterval(() => {
      this.#now = Date.now();
      update();
    }, 1000);
    return () => clearInterval(timer);
  });

  get now(): number {
    this.#subscribe();
    return this.#now;
  }
}

export const clock = new Clock();
