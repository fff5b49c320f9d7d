// The browser and system of a User-Agent, for people.

const BROWSERS: [RegExp, string][] = [
  [/Edg\/([\d]+)/, 'Edge'],
  [/OPR\/([\d]+)/, 'Opera'],
  [/Firefox\/([\d]+)/, 'Firefox'],
  [/(?:HeadlessChrome|Chrome)\/([\d]+)/, 'Chrome'],
  [/Version\/([\d]+)[\d.]* (?:Mobile\/\S+ )?Safari/, 'Safari'],
];

const SYSTEMS: [RegExp, string][] = [
  [/Windows/, 'Windows'],
  [/iPhone|iPad/, 'iOS'],
  [/Android/, 'Android'],
  [/Mac OS X/, 'macOS'],
  [/CrOS/, 'ChromeOS'],
  [/Linux/, 'Linux'],
];

/** `Firefox 140 on Linux`, or the beginning of the text. */
export function browserOf(userAgent: string): string {
  const browser = BROWSERS.map(([pattern, name]) => [pattern.exec(userAgent)?.[1], name] as const).find(([version]) => version);
  if (!browser) return userAgent.slice(0, 60) || '–';
  const system = SYSTEMS.find(([pattern]) => pattern.test(userAgent))?.[1];
  return `${browser[1]} ${browser[0]}${system ? ` on ${system}` : ''}`;
}
