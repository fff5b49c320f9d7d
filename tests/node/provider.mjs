// An identity provider for tests: oidc-provider on a free port of loopback. Any name and any password log in.
//
// Usage: node provider.mjs MODULE CONFIG
// CONFIG is a file with JSON: tests/src/oidc_provider.rs has its fields. It prints its issuer, and ends with its input.
// POST /people with {"user": "ada", "groups": ["a"]} sets the groups of a user. Without groups, it removes the user.

import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { json } from 'node:stream/consumers';

const [module, file] = process.argv.slice(2);
const { Provider } = await import(module);
const config = JSON.parse(readFileSync(file, 'utf8'));

const DEFAULT_GROUPS = ['developers'];
const groups = new Map();
const gone = new Set();

async function findAccount(_, sub) {
  if (gone.has(sub)) return undefined;
  const claims = () => ({
    sub,
    preferred_username: sub,
    name: `User ${sub}`,
    email: `${sub}@example.com`,
    email_verified: true,
    groups: groups.get(sub) ?? DEFAULT_GROUPS,
  });
  return { accountId: sub, claims };
}

/** Changes a user. */
async function change(request, response) {
  const { user, groups: given } = await json(request);
  if (given) groups.set(user, given);
  else gone.add(user);
  response.end();
}

/** The provider refuses to ask addresses of loopback. The server under test has such a one. */
function fetchFromLoopback(url, { dispatcher, ...options }) {
  return fetch(url, options);
}

const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' });

const settings = {
  clients: [
    {
      client_id: config.clientId,
      client_secret: config.clientSecret,
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: [config.redirectURI],
      post_logout_redirect_uris: [config.logoutRedirectURI],
      backchannel_logout_uri: config.backchannelLogoutURI,
      backchannel_logout_session_required: true,
      id_token_signed_response_alg: 'ES256',
    },
  ],
  claims: {
    openid: ['sub'],
    profile: ['name', 'preferred_username'],
    email: ['email', 'email_verified'],
    groups: ['groups'],
  },
  conformIdTokenClaims: !config.hasClaimsInIdToken,
  cookies: { keys: [randomBytes(32).toString('hex')] },
  features: {
    backchannelLogout: { enabled: true },
    devInteractions: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
  fetch: fetchFromLoopback,
  findAccount,
  issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
  jwks: { keys: [{ ...key, use: 'sig', alg: 'ES256', kid: 'key-1' }] },
  pkce: { required: () => true },
  rotateRefreshToken: true,
};

const tls = { cert: readFileSync(config.certificate), key: readFileSync(config.key) };
const server = createServer(tls);
server.listen(0, '127.0.0.1', () => {
  // Servers under test are at 127.0.0.1. For a browser, this is another site.
  const issuer = `https://localhost:${server.address().port}`;
  const provider = new Provider(issuer, settings);
  provider.on('server_error', (_, error) => console.error(error));
  provider.on('backchannel.error', (_, error) => console.error(error));
  const serve = provider.callback();
  server.on('request', (request, response) => {
    if (request.url === '/people') void change(request, response);
    else serve(request, response);
  });
  console.log(issuer);
});

process.stdin.on('end', () => process.exit()).resume();
