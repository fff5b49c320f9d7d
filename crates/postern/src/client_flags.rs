//! The flags for the clients of the server: the proxies before them, and the limit of failed logins.

use anyhow::Context as _;
use clap::Args;
use postern_server::{ClientAddresses, DEFAULT_LOGIN_FAILURES, Networks};
use serde::Deserialize;

/// The headers whose form is not a list of addresses.
const OTHER_FORMS: [&str; 2] = ["forwarded", "via"];

/// The largest limit of failed logins.
const MOST_LOGIN_FAILURES: u32 = 1_000_000;

/// How the server finds the address of a client, and how often it may fail to log in.
#[derive(Args, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct ClientFlags {
    /// A network or address of proxies in front of this server; may be repeated. Only they can say the address of a
    /// client, with --client-address-header or --proxy-protocol
    #[arg(long, env = "POSTERN_TRUSTED_PROXIES", value_name = "CIDR", value_delimiter = ',')]
    trusted_proxies: Vec<String>,

    /// The header in which trusted proxies list the addresses of a client and of the proxies before them, such as
    /// X-Forwarded-For. It is read from the right, up to the first address that is no trusted proxy [default: none]
    #[arg(long, env = "POSTERN_CLIENT_ADDRESS_HEADER", value_name = "NAME")]
    client_address_header: Option<String>,

    /// Whether each connection from a trusted proxy begins with the header of the PROXY protocol, version 2. Without it,
    /// such a connection is then closed [default: false]
    #[arg(
        long,
        env = "POSTERN_PROXY_PROTOCOL",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    proxy_protocol: Option<bool>,

    /// Maximum failed logins of one address in a minute. Beyond it, logins from there are rejected until the minute ends
    /// [default: 30]
    #[arg(long, env = "POSTERN_MAX_LOGIN_FAILURES", value_name = "COUNT")]
    max_login_failures: Option<u32>,
}

impl ClientFlags {
    /// How the address of a client is found.
    ///
    /// # Errors
    /// When a flag is invalid; the error names it.
    pub(crate) fn addresses(&self) -> anyhow::Result<ClientAddresses> {
        let mut trusted_proxies = Networks::default();
        for network in &self.trusted_proxies {
            trusted_proxies.add(network).context("--trusted-proxies")?;
        }
        let header = self.client_address_header.as_deref().map(|name| {
            anyhow::ensure!(
                !OTHER_FORMS.contains(&name.to_ascii_lowercase().as_str()),
                "--client-address-header {name:?}: the value must be a list of addresses, as in X-Forwarded-For"
            );
            name.parse().with_context(|| format!("--client-address-header {name:?}"))
        });
        let header = header.transpose()?;
        let proxy_protocol = self.proxy_protocol.unwrap_or_default();
        anyhow::ensure!(
            !trusted_proxies.is_empty() || (header.is_none() && !proxy_protocol),
            "--client-address-header and --proxy-protocol need --trusted-proxies"
        );
        Ok(ClientAddresses { trusted_proxies, header, proxy_protocol })
    }

    /// The failed logins that one address may have in a minute.
    ///
    /// # Errors
    /// When the number is invalid.
    pub(crate) fn max_login_failures(&self) -> anyhow::Result<u32> {
        let count = self.max_login_failures.unwrap_or(DEFAULT_LOGIN_FAILURES);
        anyhow::ensure!(
            (1..=MOST_LOGIN_FAILURES).contains(&count),
            "invalid --max-login-failures {count}: must be from 1 to {MOST_LOGIN_FAILURES}"
        );
        Ok(count)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        let is_given = !self.trusted_proxies.is_empty();
        Self {
            trusted_proxies: if is_given { self.trusted_proxies } else { other.trusted_proxies },
            client_address_header: self.client_address_header.or(other.client_address_header),
            proxy_protocol: self.proxy_protocol.or(other.proxy_protocol),
            max_login_failures: self.max_login_failures.or(other.max_login_failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(
        proxies: &[&str],
        header: Option<&str>,
        protocol: bool,
    ) -> anyhow::Result<ClientAddresses> {
        let flags = ClientFlags {
            trusted_proxies: proxies.iter().map(|&text| text.to_owned()).collect(),
            client_address_header: header.map(str::to_owned),
            proxy_protocol: Some(protocol),
            max_login_failures: None,
        };
        flags.addresses()
    }

    #[test]
    fn what_proxies_say_needs_trusted_proxies() {
        assert_eq!(flags(&[], None, false).unwrap(), ClientAddresses::default());
        let found = flags(&["10.0.0.0/8", "192.0.2.1"], Some("X-Forwarded-For"), true).unwrap();
        assert!(found.proxy_protocol && found.trusted_proxies.contains([192, 0, 2, 1].into()));
        for (wrong, said) in [
            (flags(&[], Some("X-Real-IP"), false), "need --trusted-proxies"),
            (flags(&[], None, true), "need --trusted-proxies"),
            (
                flags(&["10.0.0.1/8"], None, false),
                "--trusted-proxies: \"10.0.0.1/8\" is no network",
            ),
            (flags(&["10.0.0.1"], Some("Forwarded"), false), "a list of addresses"),
            (flags(&["10.0.0.1"], Some("a b"), false), "--client-address-header \"a b\""),
        ] {
            let error = format!("{:#}", wrong.unwrap_err());
            assert!(error.contains(said), "{error}");
        }
    }
}
