import { describe, expect, it } from 'vitest';
import { bytes, countdown, duration, fromBase64, parseDuration, shellWord, toBase64 } from '../src/lib/format';
import { matching, score } from '../src/lib/palette';
import { LineSplitter, backoff, versionOf } from '../src/lib/watch';
import { asSecret, statusIn, toYaml, withoutMetadataField } from '../src/lib/yaml-text';
import { splitReason } from '../src/lib/access';

it.each([
  [0, '0s'],
  [59, '59s'],
  [150, '2m30s'],
  [3600, '1h'],
  [90_000, '1d1h'],
  [864_000, '10d'],
  [40_000_000, '1y97d'],
])('%i seconds are %s', (seconds, text) => expect(duration(seconds)).toBe(text));

it('reads the durations that it writes', () => {
  for (const seconds of [0, 59, 150, 3600, 90_000, 864_000]) expect(parseDuration(duration(seconds))).toBe(seconds);
  for (const text of ['', '5', 'x5d', '5d ', 'd']) expect(parseDuration(text)).toBeUndefined();
});

it('writes sizes and countdowns', () => {
  expect([bytes(7), bytes(1536), bytes(20_480), bytes(1_572_864)]).toEqual(['7 B', '1.5 KiB', '20 KiB', '1.5 MiB']);
  expect([countdown(119.2), countdown(5), countdown(-1)]).toEqual(['2:00', '0:05', '0:00']);
});

it('keeps bytes through base64', () => {
  const data = Uint8Array.from({ length: 70_000 }, (_, at) => at % 256);
  expect(fromBase64(toBase64(data))).toEqual(data);
});

it('quotes words for a shell', () => {
  expect(shellWord('db.password')).toBe('db.password');
  expect(shellWord("a'; rm -rf $HOME")).toBe("'a'\\''; rm -rf $HOME'");
  expect(shellWord('')).toBe("''");
});

describe('LineSplitter', () => {
  it('joins lines that arrive in parts', () => {
    const lines = new LineSplitter();
    expect(lines.push('{"a":')).toEqual([]);
    expect(lines.push('1}\n{"b"')).toEqual(['{"a":1}']);
    expect(lines.push(':2}\n\n')).toEqual(['{"b":2}']);
  });
});

it('resumes from the version of a Table, of an object and of a bookmark', () => {
  expect(versionOf({ type: 'MODIFIED', object: { metadata: { resourceVersion: '7' } } })).toBe('7');
  expect(versionOf({ type: 'MODIFIED', object: { rows: [{ object: { metadata: { resourceVersion: '8' } } }] } })).toBe('8');
});

it('waits longer after each failed attempt, up to three seconds', () => {
  expect([0, 1, 2, 3, 9].map((attempt) => backoff(attempt, 1))).toEqual([300, 600, 1200, 2400, 3000]);
  expect(backoff(0, 0)).toBeCloseTo(210);
});

describe('YAML as text', () => {
  const yaml = 'kind: X\nmetadata:\n  managedFields:\n  - manager: a\n    fieldsV1:\n      f: {}\n  - manager: b\n  name: x\n  resourceVersion: "5"\nspec: {}\n';

  it('loses one field of the metadata', () => {
    const rest = withoutMetadataField(yaml, 'managedFields');
    expect(rest).toBe('kind: X\nmetadata:\n  name: x\n  resourceVersion: "5"\nspec: {}\n');
    expect(withoutMetadataField(rest, 'managedFields')).toBe(rest);
  });

  it('shows the entries of a secret as the secret itself, which can be applied', () => {
    const entries = (list: string) => `apiVersion: v\n${list}kind: SecretEntries\nmetadata:\n  name: db\nspec:\n  displayName: ""\nstatus: {}\n`;
    const shown = asSecret(entries('entries:\n- bytes: 7\n  isText: true\n  name: password\n- bytes: 1\n  isText: true\n  name: "n"\n'), 'SharedSecret');
    expect(shown).toBe('apiVersion: v\nkind: SharedSecret\nmetadata:\n  name: db\nspec:\n  # Without data: password, "n"\n  displayName: ""\nstatus: {}\n');
    for (const none of ['entries: []\n', '']) expect(asSecret(entries(none), 'SharedSecret')).toBe(entries('').replace('SecretEntries', 'SharedSecret'));
  });

  it('has the reason of a refusal', () => {
    const lines = [
      'apiVersion: v1',
      'code: 422',
      'details:',
      '  causes:',
      '  - field: spec.issuer',
      '    message: "Required value: must be \\"https\\""',
      '    reason: FieldValueRequired',
      "  - message: 'it''s'",
      '  kind: Connector',
      '  name: x',
      'kind: Status',
      'message: "Connector \\"x\\" is invalid:\\nspec.issuer"',
      'metadata: {}',
      'reason: Invalid',
      '',
    ];
    expect(statusIn(lines.join('\n'))).toEqual({
      message: 'Connector "x" is invalid:\nspec.issuer',
      reason: 'Invalid',
      details: { causes: [{ field: 'spec.issuer', message: 'Required value: must be "https"', reason: 'FieldValueRequired' }, { message: "it's" }] },
    });
    expect(statusIn('message: connectors "x" not found\nreason: NotFound\n')).toEqual({ message: 'connectors "x" not found', reason: 'NotFound' });
    expect(statusIn('<html>')).toEqual({});
  });

  it('writes scopes', () => {
    const scope = { projects: [{ project: 'web' }], rules: [{ verbs: ['get'], resources: [{ group: '', resources: ['*'] }] }] };
    const lines = [
      'projects:',
      '  - project: web',
      'rules:',
      '  - verbs: [get]',
      '    resources:',
      '      - group: ""',
      '        resources: ["*"]',
      '',
    ];
    expect(toYaml(scope)).toBe(lines.join('\n'));
    expect(toYaml({})).toBe('{}\n');
  });
});

it('finds the best matches first', () => {
  const items = ['shared secrets', 'p-web/db', 'db', 'dbx', 'dashboard'].map((title) => ({ title, hint: '' }));
  expect(matching(items, 'db', 10).map((item) => item.title)).toEqual(['db', 'dbx', 'p-web/db', 'dashboard']);
  expect(score('abc', 'x')).toBeUndefined();
});

it('separates the rule of a reason from its text', () => {
  expect(splitReason('no role allows it; this rule would:\n- verbs: [get]\n')).toEqual({
    text: 'no role allows it; this rule would',
    rule: '- verbs: [get]',
  });
  expect(splitReason('allowed')).toEqual({ text: 'allowed', rule: '' });
});
