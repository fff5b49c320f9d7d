// The texts about what the palette has searched. The first load does not need them.

export const paletteTexts = {
  list: 'List',
  inList: (list: string, typed: string) => `Search all ${list.toLowerCase()} for “${typed}”`,
  searching: 'Still loading names…',
  best: (count: number) => `Only the best ${count} matches are shown.`,
  first: (count: number, kinds: string) => `Searched the first ${count} of each of these: ${kinds}. Their lists search all.`,
  failed: (kinds: string) => `Not searched, because the server did not answer: ${kinds}.`,
};
