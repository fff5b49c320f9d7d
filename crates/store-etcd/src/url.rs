//! The address of a store on etcd: `etcd://host:port,host:port/prefix`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use postern_store::{Error, Result};
use zeroize::Zeroizing;

/// The port of etcd's clients.
const PORT: u16 = 2379;

/// The prefix of keys if the address has none.
const PREFIX: &str = "/postern";

/// The members of an etcd, and the prefix of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUrl {
    /// Host and port of each member, as in `10.0.0.1:2379`.
    pub(crate) members: Vec<String>,
    /// Begins with a slash and does not end with one.
    pub(crate) prefix: String,
}

impl EtcdUrl {
    /// The same members with another prefix.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self { members: self.members.clone(), prefix: prefix.to_owned() }
    }

    /// The addresses with the prefixes around this one: those of `/a` and `/a/b` for `/a/b/c`.
    pub(crate) fn outer(&self) -> impl Iterator<Item = Self> {
        let ends = self.prefix.match_indices('/').map(|(end, _)| end).filter(|end| *end > 0);
        ends.map(|end| self.with_prefix(&self.prefix[..end]))
    }

    /// Whether all members are on this machine, so that traffic needs no TLS.
    pub(crate) fn is_loopback(&self) -> bool {
        self.members.iter().all(|member| {
            let host = member.rsplit_once(':').map_or(member.as_str(), |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        })
    }
}

impl FromStr for EtcdUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // The text before `@` may be a password.
        let without_user = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        let invalid = |why: &str| {
            Error::Invalid(format!(
                "the store {without_user:?} {why}; expected etcd://HOST:PORT,HOST:PORT/PREFIX"
            ))
        };
        let rest = text.strip_prefix("etcd://").ok_or_else(|| invalid("is not on etcd"))?;
        let (hosts, prefix) = match rest.split_once('/') {
            Some((hosts, prefix)) => (hosts, format!("/{}", prefix.trim_end_matches('/'))),
            None => (rest, PREFIX.to_owned()),
        };
        if text.contains('@') {
            return Err(invalid(
                "has a user: pass it with --etcd-user, and the password in a file",
            ));
        }
        if prefix == "/" || prefix.contains("//") {
            return Err(invalid("has a prefix without a name"));
        }
        if prefix.split('/').any(|part| part == "." || part == "..") {
            return Err(invalid("has \".\" or \"..\" in its prefix, which etcd takes for names"));
        }
        if prefix.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(invalid("has a space or a control character in its prefix"));
        }
        if prefix.contains(['?', '#']) {
            return Err(invalid("has options, which this address cannot have"));
        }
        let members =
            hosts.split(',').map(|host| member(host).ok_or_else(|| invalid("names no host")));
        let members = members.collect::<Result<Vec<_>>>()?;
        let is_twice = |(at, member)| members[..at].contains(member);
        if members.iter().enumerate().any(is_twice) {
            return Err(invalid("names a host twice"));
        }
        Ok(Self { members, prefix })
    }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}{}", self.members.join(","), self.prefix)
    }
}

/// Host and port of a member.
fn member(host: &str) -> Option<String> {
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let (name, port) = match name {
        Some((name, port)) => (name, port.parse().ok()?),
        None => (host, PORT),
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_address = name.starts_with('[') && name.ends_with(']');
    let valid = if is_address {
        name[1..name.len() - 1].parse::<IpAddr>().is_ok()
    } else {
        !name.is_empty() && name.bytes().all(is_host)
    };
    valid.then(|| format!("{name}:{port}"))
}

/// How a server proves its identity to etcd, and recognizes etcd.
#[derive(Clone, Debug, Default)]
pub struct EtcdAccess {
    /// The certificates of the authorities of etcd's own certificate, as PEM.
    pub ca_file: Option<PathBuf>,
    /// The client certificate and its key, as PEM.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// The name of a user and the password.
    pub user: Option<(String, Password)>,
    /// Whether a version of etcd with known data loss is accepted.
    pub allow_old: bool,
}

/// A password, which is not printed.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes a password over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The password itself.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_members_and_a_prefix() {
        for (text, printed, loopback) in [
            ("etcd://a:1,b:2/x", "etcd://a:1,b:2/x", false),
            ("etcd://127.0.0.1", "etcd://127.0.0.1:2379/postern", true),
            ("etcd://localhost:5/p/q/", "etcd://localhost:5/p/q", true),
            ("etcd://[::1]:7/p", "etcd://[::1]:7/p", true),
            ("etcd://[::1],10.0.0.1/p", "etcd://[::1]:2379,10.0.0.1:2379/p", false),
        ] {
            let url: EtcdUrl = text.parse().unwrap();
            assert_eq!((url.to_string().as_str(), url.is_loopback()), (printed, loopback));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, why) in [
            ("http://a", "is not on etcd"),
            ("etcd://", "names no host"),
            ("etcd://a,,b", "names no host"),
            ("etcd://a b", "names no host"),
            ("etcd://a:1:2", "names no host"),
            ("etcd://[::1", "names no host"),
            ("etcd://a/", "has a prefix without a name"),
            ("etcd://a//b", "has a prefix without a name"),
            ("etcd://u:p@a/b", "has a user"),
            ("etcd://u:p/w@a:1/b", "has a user"),
            ("etcd://a/../b", "in its prefix"),
            ("etcd://a/b/../c", "in its prefix"),
            ("etcd://a/./b", "in its prefix"),
            ("etcd://a/b c", "a space"),
            ("etcd://a/b\n", "a control character"),
            ("etcd://a:1,b:1,a:1/p", "names a host twice"),
            ("etcd://a,a:2379/p", "names a host twice"),
            ("etcd://a/b?c=d", "has options"),
        ] {
            let error = text.parse::<EtcdUrl>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_printed() {
        for text in ["etcd://u:s3cr3t@a/b", "etcd://u:s3c/s3cr3t@a//b", "http://u:s3cr3t@a"] {
            let error = text.parse::<EtcdUrl>().unwrap_err().to_string();
            assert!(!error.contains("s3c"), "{error}");
        }
    }

    #[test]
    fn a_prefix_is_inside_shorter_ones() {
        let outer = |text: &str| -> Vec<String> {
            text.parse::<EtcdUrl>().unwrap().outer().map(|url| url.prefix).collect()
        };
        assert_eq!(outer("etcd://a/b/c/d"), ["/b", "/b/c"]);
        assert!(outer("etcd://a/b").is_empty());
    }

    #[test]
    fn a_password_is_not_printed() {
        let access = EtcdAccess {
            user: Some(("root".to_owned(), Password::new("s3cr3t".to_owned()))),
            ..EtcdAccess::default()
        };
        assert!(!format!("{access:?}").contains("s3cr3t"));
    }
}
