// Work on many items, of which a few are in progress at once.

/** Does the work for each item, for at most `most` of them at once. It begins no more after a failure or an abort. */
export async function forEach<T>(items: T[], most: number, signal: AbortSignal, work: (item: T, at: number) => Promise<void>): Promise<void> {
  let next = 0;
  let hasFailed = false;
  const worker = async (): Promise<void> => {
    while (next < items.length && !signal.aborted && !hasFailed) {
      const at = next++;
      try {
        await work(items[at] as T, at);
      } catch (cause) {
        hasFailed = true;
        throw cause;
      }
    }
  };
  await Promise.all(Array.from({ length: most }, worker));
}
