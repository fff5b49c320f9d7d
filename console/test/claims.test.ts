import { describe, expect, it } from 'vitest';
import { KNOWN_CLAIMS, matchOf, rowsFor } from '../src/lib/claims';
import { EXAMPLES } from '../src/lib/examples';

describe('the claims of a new workload identity', () => {
  it('begin with those that its platform needs', () => {
    expect(rowsFor('GitLab').map((row) => row.claim)).toEqual(['project_id', 'ref', 'ref_protected']);
    expect(rowsFor('')).toEqual([{ claim: '', values: '' }]);
    for (const [type, known] of Object.entries(KNOWN_CLAIMS)) {
      for (const { claim } of rowsFor(type)) expect(known).toContain(claim);
    }
  });

  it('keep what was typed when the issuer changes', () => {
    const typed = [
      { claim: 'ref', values: 'refs/heads/main' },
      { claim: 'repository_id', values: ' ' },
    ];
    expect(rowsFor('GitLab', typed)).toEqual([
      { claim: 'ref', values: 'refs/heads/main' },
      { claim: 'project_id', values: '' },
      { claim: 'ref_protected', values: '' },
    ]);
  });

  it('have one value in each line', () => {
    const rows = [
      { claim: 'environment', values: ' prod, east \n\nstaging\n' },
      { claim: '', values: '' },
    ];
    expect(matchOf(rows)).toEqual([{ claim: 'environment', values: ['prod, east', 'staging'] }]);
  });

  it('keep half a row, so that the server refuses it', () => {
    expect(matchOf([{ claim: 'ref', values: '' }])).toEqual([{ claim: 'ref', values: [] }]);
  });
});

it('has examples of the kind that they are for', () => {
  for (const [kind, text] of Object.entries(EXAMPLES)) expect(text).toContain(`\nkind: ${kind}\n`);
});
