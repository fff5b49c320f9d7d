// How the caller may read the objects of a list: as the owner, by a share, as a member, or by a role.
import { decide } from './access';
import { failureOf, type Failure } from './failure';
import type { Kind } from './kinds';
import type { Row } from './row-store';
import { sourceOf, type Source } from './source';

/** The rows that are asked about at most. They travel in one request. */
export const MOST_ASKED = 200;

export class Sources {
  failure: Failure | undefined = $state.raw();
  readonly #kind: Kind;
  #known: Map<string, Source> = $state.raw(new Map());
  #asked = new Set<string>();

  constructor(kind: Kind) {
    this.#kind = kind;
  }

  /** The source of a row; undefined until the server has answered. */
  of(row: Row): Source | undefined {
    return this.#known.get(idOf(row));
  }

  /** Asks about the rows that are not known. A changed object is asked about again. */
  ask(rows: Row[]): void {
    const open = rows.slice(0, MOST_ASKED).filter((row) => !this.#asked.has(idOf(row)));
    if (open.length === 0) return;
    for (const row of open) this.#asked.add(idOf(row));
    const { group, plural } = this.#kind;
    const questions = open.map(({ name, namespace }) => decide({ verb: 'get', group, resource: plural, name, ...(namespace ? { namespace } : {}) }));
    Promise.all(questions).then(
      (results) => {
        this.failure = undefined;
        const answers = open.map((row, index): [string, Source] => [idOf(row), sourceOf(results[index]?.reason ?? '')]);
        this.#known = new Map([...this.#known, ...answers]);
      },
      (cause: unknown) => {
        this.failure = failureOf(cause);
        for (const row of open) this.#asked.delete(idOf(row));
      },
    );
  }
}

const idOf = (row: Row): string => `${row.uid} ${row.version}`;
