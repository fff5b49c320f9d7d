// The columns Status, Expires and Last Used of access keys. Older servers send the fields that they follow from.
import { NEVER, stateAt } from './keys';
import type { Cell, Column, Row } from './row-store';

/** How the rows of a Table become those that are shown. */
export interface Adaption {
  columns: Column[];
  adapt: (row: Row) => Row;
}

const text = (name: string): Column => ({ name, type: 'string', description: '' });

/** The end of a key by its creation and time-to-live, as the column `Expires` has it. */
function endOfRow(row: Row, ttl: Cell | undefined): string {
  const seconds = Number(ttl ?? 0);
  return seconds > 0 ? new Date(Date.parse(row.created) + seconds * 1000).toISOString() : NEVER;
}

/** Adds the columns to rows of an older server. Other rows stay as they are. */
export function withKeyColumns(columns: Column[], now: () => number = Date.now): Adaption {
  const at = (name: string): number => columns.findIndex((column) => column.name === name);
  const [enabled, ttl, lastUse] = [at('Enabled'), at('TTL Seconds'), at('Last Activity')];
  if (enabled < 0 || ttl < 0 || lastUse < 0 || at('Status') >= 0) return { columns, adapt: (row) => row };
  return {
    columns: [...columns, text('Status'), text('Expires'), text('Last Used')],
    adapt: (row) => {
      const expires = endOfRow(row, row.cells[ttl]);
      const told = String(row.cells[enabled]) === 'true' ? 'Active' : 'Disabled';
      const status = stateAt(told, timeOf(expires), now());
      return { ...row, cells: [...row.cells, status, expires, row.cells[lastUse] ?? null] };
    },
  };
}

/** The time in a cell, in milliseconds; undefined for a cell without a time. */
export function timeOf(cell: Cell | undefined): number | undefined {
  const at = typeof cell === 'string' && /^\d{4}-\d\d-\d\dT/.test(cell) ? Date.parse(cell) : Number.NaN;
  return Number.isNaN(at) ? undefined : at;
}
