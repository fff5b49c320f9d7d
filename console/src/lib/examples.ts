// Objects to begin with, for kinds that have no form.
export const EXAMPLES: Record<string, string> = {
  Connector: `apiVersion: management.platform.sh/v1
kind: Connector
metadata:
  name: corp
spec:
  displayName: Example Corp
  issuer: https://login.example.com/realms/corp
  clientId: postern
  # Without a secret, the client is a public one.
  # clientSecret:
  #   secretName: corp-oidc
  #   secretNamespace: platform
  groupsClaim: groups
  # Exactly one of groups, emailDomains and everyone.
  allow:
    groups: [developers]
`,
  TrustedIssuer: `apiVersion: management.platform.sh/v1
kind: TrustedIssuer
metadata:
  name: github
spec:
  # GitHubActions, GitLab, Kubernetes or Generic.
  type: GitHubActions
  # Other types need the issuer.
  # issuer: https://gitlab.example.com
  # A connected cluster has the type Kubernetes. It also needs the
  # thumbprints (RFC 7638) of the keys that sign its tokens.
  # cluster: east
  # keyThumbprints: [NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs]
`,
};
