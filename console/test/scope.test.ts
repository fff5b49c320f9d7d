import { describe, expect, it } from 'vitest';
import { emptyEntry, fromScope, isComplete, missingFields, parseRule, toScope, type ScopeEntry } from '../src/lib/scope';

const ENTRIES: ScopeEntry[] = [
  { type: 'project', project: 'web', isReadOnly: false },
  { type: 'virtualCluster', project: 'web', virtualCluster: 'dev' },
  { type: 'space', project: 'web', space: '*' },
  { type: 'project', project: 'shop', isReadOnly: true },
  { type: 'cluster', cluster: 'east', isReadOnly: false },
  { type: 'cluster', cluster: 'west', isReadOnly: true },
  { type: 'secret', namespace: 'platform', name: 'db', canWrite: false },
  { type: 'secret', namespace: 'platform', name: 'db', canWrite: true },
  { type: 'read' },
  { type: 'rule', text: JSON.stringify({ nonResourceURLs: ['/metrics'] }, undefined, 2) },
  { type: 'cli' },
];

describe('toScope and fromScope', () => {
  it('keep every kind of entry', () => {
    expect(fromScope(toScope(ENTRIES))).toEqual(ENTRIES);
  });

  it('make of projects that are only read the rules of `postern create accesskey --read-only`', () => {
    const read = (project: string): ScopeEntry => ({ type: 'project', project, isReadOnly: true });
    const verbs = ['get', 'list', 'watch'];
    expect(toScope([read('web'), read('shop'), { type: 'cluster', cluster: 'east', isReadOnly: true }])).toEqual({
      rules: [
        {
          verbs,
          resources: [{ group: 'management.platform.sh', resources: ['projects', 'projects/*'], resourceNames: ['web', 'shop'] }],
          namespaces: [''],
          requestTargets: ['Management'],
        },
        { verbs, namespaces: ['p-web', 'p-shop'], requestTargets: ['Management'] },
        { cluster: 'east', verbs },
      ],
    });
  });

  it('keep rules of reads that are of other namespaces than those of the projects', () => {
    const scope = toScope([{ type: 'project', project: 'web', isReadOnly: true }]);
    const [first = {}, second = {}] = scope.rules ?? [];
    const wider = { rules: [first, { ...second, namespaces: ['p-web', 'platform'] }] };
    expect(fromScope(wider).map(({ type }) => type)).toEqual(['rule', 'rule']);
    expect(toScope(fromScope(wider))).toEqual(wider);
  });

  it('make the empty scope of no entries, which allows nothing', () => {
    expect(toScope([])).toEqual({});
  });

  it('keep a rule that looks like a known entry and is wider', () => {
    const rule = { cluster: 'east', verbs: ['get'] };
    expect(toScope(fromScope({ rules: [rule] }))).toEqual({ rules: [rule] });
  });

  it('knows the rule of a secret in any order of its fields, as the server returns it', () => {
    const rule = {
      namespaces: ['platform'],
      requestTargets: ['Management' as const],
      resources: [{ group: 'management.platform.sh', resourceNames: ['db'], resources: ['sharedsecrets', 'projectsecrets'] }],
      verbs: ['get', 'list', 'watch'],
    };
    expect(fromScope({ rules: [rule] })).toEqual([{ type: 'secret', namespace: 'platform', name: 'db', canWrite: false }]);
  });
});

it('names the fields that must have a value, because an empty one could mean all', () => {
  expect(missingFields(emptyEntry('secret'))).toEqual(['namespace', 'name']);
  expect(missingFields({ type: 'cli' })).toEqual([]);
});

it('accepts only objects as rules', () => {
  expect(parseRule('{"verbs":["get"]}')).toEqual({ verbs: ['get'] });
  for (const text of ['[]', 'null', '1', '{']) expect(typeof parseRule(text)).toBe('string');
});

it('is not complete with reads of all projects, which new projects would leave', () => {
  const all = (isReadOnly: boolean): ScopeEntry[] => [{ type: 'project', project: '*', isReadOnly }];
  expect([isComplete(all(false)), isComplete(all(true)), isComplete([emptyEntry('project')])]).toEqual([true, false, false]);
});
