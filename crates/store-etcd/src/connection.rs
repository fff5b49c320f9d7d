//! Connections to etcd: their TLS, and their errors in words that tell an operator what to do.

use std::error::Error as StdError;
use std::path::Path;

use postern_store::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use tonic::{Code, Status};

use crate::url::{EtcdAccess, EtcdUrl};

/// The TLS of all connections; `None` for connections within this machine.
///
/// # Errors
/// [`Error::Invalid`] for files that cannot be used, and without TLS to another machine.
pub(crate) fn tls(url: &EtcdUrl, access: &EtcdAccess) -> Result<Option<ClientTlsConfig>> {
    if access.ca_file.is_none() && access.client_cert.is_none() {
        if url.is_loopback() {
            return Ok(None);
        }
        return Err(invalid(
            "connections to another machine need TLS: pass --etcd-ca-file with the authority of its certificate",
        ));
    }
    let mut tls = ClientTlsConfig::new();
    if let Some(file) = &access.ca_file {
        tls = tls.ca_certificate(Certificate::from_pem(certificates(file, "--etcd-ca-file")?));
    }
    if let Some((cert, key)) = &access.client_cert {
        let cert = certificates(cert, "--etcd-cert-file")?;
        tls = tls.identity(Identity::from_pem(cert, private_key(key)?));
    }
    Ok(Some(tls))
}

fn certificates(file: &Path, flag: &str) -> Result<Vec<u8>> {
    let pem = read(file)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect();
    if found.is_empty() || found.iter().any(std::result::Result::is_err) {
        let file = file.display();
        return Err(invalid(&format!("{file} of {flag} has no certificate in PEM")));
    }
    Ok(pem)
}

fn private_key(file: &Path) -> Result<Vec<u8>> {
    let pem = read(file)?;
    if PrivateKeyDer::from_pem_slice(&pem).is_err() {
        let file = file.display();
        return Err(invalid(&format!("{file} of --etcd-key-file has no private key in PEM")));
    }
    Ok(pem)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a small file that the operator names, once at the start"
)]
fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file)
        .map_err(|error| invalid(&format!("cannot read {}: {error}", file.display())))
}

pub(crate) fn invalid(why: &str) -> Error {
    Error::Invalid(format!("etcd: {why}"))
}

/// The cause of an error below all others, which says most.
pub(crate) fn deepest(error: &dyn StdError) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

const LATE: &str = "etcd did not answer in time";

/// The facts about a connection that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed<'a> {
    /// The host and port.
    pub(crate) address: &'a str,
    /// Whether it uses TLS.
    pub(crate) has_tls: bool,
    /// Whether this server ever got an answer from etcd with these settings.
    pub(crate) has_answered: bool,
}

impl Failed<'_> {
    /// The status of a call that never got an answer, with its cause and advice as its text. Others stay as they are.
    pub(crate) fn in_words(self, status: Status) -> Status {
        let Some(source) = status.source() else { return status };
        Status::new(status.code(), self.words(&deepest(source)))
    }

    /// The status of a call that could not be sent, because the connection failed.
    pub(crate) fn not_connected(self, error: &dyn StdError) -> Status {
        Status::new(Code::Unavailable, self.words(&deepest(error)))
    }

    /// The status of a call that took too long.
    pub(crate) fn late(self) -> Status {
        Status::deadline_exceeded(self.words(LATE))
    }

    fn words(self, cause: &str) -> String {
        let advice = self.advice(cause).map(|advice| format!("; {advice}")).unwrap_or_default();
        format!("{}: {cause}{advice}", self.address)
    }

    /// The advice to the operator, by the texts of rustls and of the connection.
    fn advice(self, cause: &str) -> Option<&'static str> {
        let has = |words: &[&str]| words.iter().any(|word| cause.contains(word));
        let is_cut_off = has(&["broken pipe", "reset", "closed", "eof", "frame"]);
        if cause == LATE && !self.has_answered {
            return Some("check that the name resolves, and that no firewall is in between");
        }
        match self.has_tls {
            true if has(&["UnknownIssuer", "BadSignature"]) => {
                Some("etcd's certificate is not from the authority in --etcd-ca-file")
            }
            true if has(&["fatal alert"]) => Some(
                "etcd refuses the TLS of this server: pass --etcd-cert-file and --etcd-key-file that etcd's \
                 --trusted-ca-file accepts",
            ),
            true if is_cut_off && !self.has_answered => Some(
                "if etcd asks for client certificates, pass --etcd-cert-file and --etcd-key-file that its \
                 --trusted-ca-file accepts; if it has no TLS, pass no --etcd-ca-file",
            ),
            false if is_cut_off && !self.has_answered => {
                Some("if etcd uses TLS there, pass --etcd-ca-file")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_connections_name_the_member_and_what_to_do() {
        let advice = |has_tls, has_answered, cause: &str| {
            Failed { address: "10.0.0.7:2379", has_tls, has_answered }.words(cause)
        };
        let broken = "stream closed because of a broken pipe";
        for (has_tls, has_answered, cause, expected) in [
            (true, false, "invalid peer certificate: UnknownIssuer", "--etcd-ca-file"),
            (true, true, "received fatal alert: BadCertificate", "--etcd-cert-file"),
            (true, false, "tls handshake eof", "pass no --etcd-ca-file"),
            (true, false, broken, "--etcd-cert-file"),
            (false, false, broken, "pass --etcd-ca-file"),
            (true, false, LATE, "check that the name resolves"),
        ] {
            let text = advice(has_tls, has_answered, cause);
            assert!(text.starts_with("10.0.0.7:2379: ") && text.contains(expected), "{text}");
        }
        // A member that ended is no reason to change settings that have worked.
        for (has_tls, cause) in [(true, broken), (false, broken), (true, LATE)] {
            assert_eq!(advice(has_tls, true, cause), format!("10.0.0.7:2379: {cause}"));
        }
        let refused = "Connection refused (os error 111)";
        assert_eq!(advice(true, false, refused), format!("10.0.0.7:2379: {refused}"));
    }
}
