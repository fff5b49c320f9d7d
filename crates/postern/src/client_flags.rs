//! The flags for the clients of the server: the proxies before them, and the limit of failed logins.

use clap::{Args, value_parser};
use http::HeaderName;
use postern_server::{ClientAddresses, DEFAULT_LOGIN_FAILURES, Networks};

use crate::values::{address_header, proxy_network};

/// How the server finds the address of a client, and how often it may fail to log in.
#[derive(Args)]
pub(crate) struct ClientFlags {
    /// A network or address of proxies in front of this server; may be repeated. Only they can say the address of a
    /// client, with --client-address-header or --proxy-protocol
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = proxy_network)]
    trusted_proxies: Vec<String>,

    /// The header in which trusted proxies list the addresses of a client and of the proxies before them, such as
    /// X-Forwarded-For. It is read from the right, up to the first address that is no trusted proxy [default: none]
    #[arg(long, value_name = "NAME", value_parser = address_header)]
    client_address_header: Option<HeaderName>,

    /// Whether each connection from a trusted proxy begins with the header of the PROXY protocol, version 2. Without it,
    /// such a connection is then closed
    #[arg(long)]
    proxy_protocol: bool,

    /// Maximum failed logins of one address in a minute. Beyond it, logins from there are rejected until the minute ends
    #[arg(long, default_value_t = DEFAULT_LOGIN_FAILURES, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_login_failures: u32,
}

impl ClientFlags {
    /// How the address of a client is found.
    ///
    /// # Errors
    /// When flags do not go together.
    pub(crate) fn addresses(self) -> anyhow::Result<ClientAddresses> {
        let mut trusted_proxies = Networks::default();
        self.trusted_proxies.iter().try_for_each(|network| trusted_proxies.add(network))?;
        let (header, proxy_protocol) = (self.client_address_header, self.proxy_protocol);
        anyhow::ensure!(
            !trusted_proxies.is_empty() || (header.is_none() && !proxy_protocol),
            "--client-address-header and --proxy-protocol need --trusted-proxies"
        );
        Ok(ClientAddresses { trusted_proxies, header, proxy_protocol })
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;

    fn flags(words: &[&str]) -> anyhow::Result<ClientAddresses> {
        let command = ClientFlags::augment_args(Command::new("serve").no_binary_name(true));
        ClientFlags::from_arg_matches(&command.try_get_matches_from(words)?)?.addresses()
    }

    #[test]
    fn what_proxies_say_needs_trusted_proxies() {
        assert_eq!(flags(&[]).unwrap(), ClientAddresses::default());
        let header = "--client-address-header=X-Forwarded-For";
        let found =
            flags(&["--trusted-proxies=10.0.0.0/8,192.0.2.1", header, "--proxy-protocol"]).unwrap();
        assert!(found.proxy_protocol && found.trusted_proxies.contains([192, 0, 2, 1].into()));
        for (words, said) in [
            (&[header][..], "need --trusted-proxies"),
            (&["--proxy-protocol"], "need --trusted-proxies"),
            (
                &["--trusted-proxies=10.0.0.1/8"],
                "'--trusted-proxies <CIDR>': \"10.0.0.1/8\" is no network",
            ),
            (&["--client-address-header=Forwarded"], "a list of addresses"),
            (
                &["--client-address-header=a b"],
                "invalid value 'a b' for '--client-address-header <NAME>'",
            ),
        ] {
            let error = flags(words).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
