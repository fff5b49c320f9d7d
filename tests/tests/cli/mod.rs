//! The binary's own commands, as users and scripts use them.

mod access_keys;
mod access_reviews;
mod apply;
mod completion;
mod connect;
mod console;
mod create;
mod describe;
mod get;
mod impersonation;
mod invitations;
mod kinds;
mod lockout;
mod login;
mod offboard;
mod operator;
mod plugin;
mod projects;
mod prompts;
mod proxy;
mod roles;
mod running;
mod scopes;
mod secret_keys;
mod secret_run;
mod secrets;
mod sharing;
mod status;
mod stories;
mod supervision;
mod terminal;
mod terminal_output;
mod tokens;
mod tour;
mod usage;
mod version;
mod workloads;

use postern_tests::Server;
use postern_tests::cli::CliUser;

/// A user with the administrator's kubeconfig.
fn admin(server: &Server) -> CliUser {
    CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap())
}

/// The URL of the server: `https://HOST:PORT`.
fn url(server: &Server) -> String {
    format!("https://{}", server.kubeconfig().authority_of_server())
}

/// Writes the server's certificate authority into the user's home, and returns its path.
fn authority(user: &CliUser, server: &Server) -> String {
    user.file("ca.pem", &server.kubeconfig().authority)
}
