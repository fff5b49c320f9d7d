//! The binary's own commands, as people and scripts use them.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod access_keys;
mod impersonation;
mod login;
mod operator;
mod secrets;
mod tour;
mod usage;

use postern_tests::Server;
use postern_tests::cli::CliUser;

/// Somebody who has the administrator's kubeconfig.
fn admin(server: &Server) -> CliUser {
    CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap())
}

/// `https://HOST:PORT`
fn url(server: &Server) -> String {
    format!("https://{}", server.kubeconfig().authority_of_server())
}

/// The server's certificate authority, as a file of this person's.
fn authority(person: &CliUser, server: &Server) -> String {
    person.file("ca.pem", &server.kubeconfig().authority)
}
