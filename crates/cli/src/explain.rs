//! Explanations of failed requests for the user, with the next steps.

use std::io::ErrorKind;

use postern_client::{CertificateProblem, Error};
use postern_kinds::namespace::Namespace;
use postern_kinds::{Kind as _, Verb};
use postern_meta::status::{Reason, Status};

use crate::error::CliError;
use crate::kinds;
use crate::output::escape;

/// The hint for a command without a usable login.
pub(crate) const LOGIN_HINT: &str = "log in with `postern login https://HOST:PORT --ca-digest sha256:HEX`: the first start of the server and `postern invite` \
     print this command";

/// The error with hints. `server` is where the request was sent, and `acting_as` as whom,
/// if not as the key's own bearer.
pub(crate) fn explain(error: &Error, server: &str, acting_as: Option<&str>) -> CliError {
    let explained = CliError::new(escape(&error.to_string()));
    match error {
        Error::Status(status) => of_status(status, server, acting_as),
        Error::Resolve { .. } => explained.hint("check the host name and the network"),
        Error::Connect { source, .. } if source.kind() == ErrorKind::ConnectionRefused => explained
            .hint("nothing listens there: is the server running, and is the port right?")
            .hint("`postern serve` listens on port 8443 by default"),
        Error::Connect { .. } | Error::Timeout { .. } => {
            explained.hint("check the address, the network, and that the server is up")
        }
        Error::Proxy { .. } => explained
            .hint(
                "HTTPS_PROXY, or proxy-url in the kubeconfig, names the proxy and its credentials",
            )
            .hint("to reach the server without the proxy, add its host to NO_PROXY"),
        Error::Handshake { .. } => {
            explained.hint("another program may use this port: check host and port")
        }
        Error::Certificate { problem, .. } => of_certificate(explained, problem),
        Error::Lost { .. } => explained
            .hint("the change may or may not have been made: read the object before you try again"),
        Error::Unexpected { .. } => {
            explained.hint(format!("check that {server} is a Postern server and not a proxy"))
        }
        Error::Key => explained.hint(LOGIN_HINT),
        Error::Trust(_) => explained.hint("--ca-file takes a file with certificates in PEM"),
        Error::Impersonation(_) => explained.hint(
            "the identity comes from the --as flags, or from the `as` fields of the user in \
                   the kubeconfig",
        ),
        Error::TooLarge { .. } | Error::Name(_) | Error::NoWatch => explained,
    }
}

/// The error in terms of the flags that have set the refused fields, each named with its field. An error
/// about another field stays as it is.
pub(crate) fn by_flags(explained: CliError, error: &Error, flags: &[(&str, &str)]) -> CliError {
    let status = error.status().filter(|status| status.reason == Reason::Invalid);
    let details = status.and_then(|status| status.details.as_ref());
    let causes = details.map_or(&[][..], |details| &details.causes);
    let mut said = Vec::new();
    for cause in causes {
        let field = without_indices(&cause.field);
        let Some((_, flag)) = flags.iter().find(|(of, _)| *of == field) else { return explained };
        said.push(format!("{flag}: {}", escape(&cause.message)));
    }
    if said.is_empty() {
        return explained;
    }
    let mut explained = explained;
    explained.message = said.join("; ");
    explained
}

/// The path of a field without the places in lists: `spec.users[0]` is `spec.users`.
fn without_indices(field: &str) -> String {
    let mut parts = field.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once(']').map_or("", |(_, rest)| rest))
}

fn of_certificate(error: CliError, problem: &CertificateProblem) -> CliError {
    match problem {
        CertificateProblem::UnknownIssuer => error
            .hint("give the server's certificate authority with --ca-file FILE, or its digest with --ca-digest, and log in again")
            .hint("on the server it is DIR/keys/tls-ca.pem; it is also in DIR/admin.kubeconfig"),
        CertificateProblem::WrongName => error
            .hint("use a name that the certificate is for, or start the server with --host NAME"),
        CertificateProblem::WrongTime => {
            error.hint("check the clocks of both machines, and the server's certificate")
        }
        CertificateProblem::OtherAuthority { .. } => error
            .hint("nothing was sent to this server: it may be another one, or another program in between")
            .hint("ask its operator for the digest, or for the file keys/tls-ca.pem for --ca-file"),
        CertificateProblem::Other(_) => {
            error.hint("the operator of the server has to check its certificate")
        }
    }
}

fn of_status(status: &Status, server: &str, acting_as: Option<&str>) -> CliError {
    // Messages about several rules have a line for each.
    let lines: Vec<String> = status.message.lines().map(escape).collect();
    let message = lines.join("\n  ");
    match (status.code, status.reason) {
        (401, _) => of_refused_key(&message, server),
        (403, _) => of_forbidden(message, acting_as),
        (404, _) => of_missing(message, status),
        (_, Reason::AlreadyExists) => {
            CliError::new(message).hint("nothing was changed; choose another name")
        }
        (409, _) => CliError::new(message)
            .hint("nothing was changed: another writer changed the object; read it, and try again"),
        (400 | 413 | 422, _) => {
            CliError::new(message).hint("nothing was changed: correct it, and try again")
        }
        (429, _) => CliError::new(format!("the server is too busy: {message}"))
            .hint("try again in a moment"),
        (503, _) => CliError::new(format!("the server cannot do this now: {message}"))
            .hint("try again in a moment; if it fails again, read the server's log"),
        (500.., _) => {
            CliError::new(format!("the server failed: {message}")).hint("read the server's log")
        }
        _ => CliError::new(message),
    }
}

/// The error for a denied request. Under impersonation, the caller may lack the right to impersonate, or the
/// impersonated user may lack the right.
fn of_forbidden(message: String, acting_as: Option<&str>) -> CliError {
    let may_not_act = message.contains("cannot impersonate");
    let error = CliError::new(message);
    let Some(user) = acting_as else {
        return error
            .hint("the access key lacks this permission: `postern whoami` shows its owner")
            .hint("ask an administrator or the owner of the object for the permission");
    };
    let error = if may_not_act {
        error.hint("impersonation requires the verb impersonate: ask an administrator")
    } else {
        error.hint(format!(
            "the request was made as {}, with the permissions of that user and the scope of your \
             access key",
            escape(user)
        ))
    };
    error.hint("to act as yourself, omit --as, or remove `as` from the user in the kubeconfig")
}

fn of_missing(message: String, status: &Status) -> CliError {
    let kind = status.details.as_ref().map_or("", |details| details.kind.as_str());
    let error = CliError::new(message);
    let Some(info) = kinds::served(Verb::List).find(|info| info.plural == kind) else {
        return error;
    };
    let all = if info.is_namespaced() { " -A" } else { "" };
    let error = error.hint(format!("`postern list {}{all}` lists them", kinds::plural_name(info)));
    if info.kind == Namespace::INFO.kind {
        return error.hint("-n names another; `postern apply -f` creates one from a manifest of the kind Namespace");
    }
    error
}

fn of_refused_key(message: &str, server: &str) -> CliError {
    let says = |word: &str| message.contains(word);
    let again = format!("then log in with it: `postern login {server} --access-key -`");
    if says("expired") {
        CliError::new(message.to_owned())
            .hint("the access key has expired: create a new one with `postern create accesskey`")
            .hint(again)
            .hint(format!(
                "if a login made the key: `postern login {server}`, in a pipeline with \
                 --workload-identity NAME"
            ))
    } else if says("disabled") {
        CliError::new(message.to_owned())
            .hint(
                "the key, or its owner, is disabled: an administrator or the owner can run \
                 `postern enable accesskey NAME`",
            )
            .hint(format!("or get another key, {again}"))
    } else {
        CliError::new(format!("the server does not accept the access key: {message}"))
            .hint("it may be mistyped, replaced by `postern rotate accesskey`, or deleted")
            .hint(format!("get a valid access key, {again}"))
    }
}

#[cfg(test)]
mod tests {
    use postern_meta::status::{StatusCause, StatusDetails};

    use super::*;

    fn of(code: u16, reason: Reason, message: &str) -> String {
        let error = Error::Status(Box::new(Status::failure(code, reason, message)));
        let error = explain(&error, "https://h", None);
        format!("{} | {}", error.message, error.hints.join(" | "))
    }

    #[test]
    fn every_refusal_has_a_hint() {
        for (message, wanted) in [
            ("access key expired", "create accesskey"),
            ("access key expired", "--workload-identity NAME"),
            ("access key disabled", "enable accesskey"),
            ("access key not found", "rotate accesskey"),
        ] {
            let said = of(401, Reason::Unauthorized, message);
            assert!(said.contains(message) && said.contains(wanted), "{said}");
            assert!(said.contains("postern login https://h"), "{said}");
        }
        for (code, reason, wanted) in [
            (403, Reason::Forbidden, "whoami"),
            (409, Reason::AlreadyExists, "another name"),
            (409, Reason::Conflict, "try again"),
            (422, Reason::Invalid, "correct it"),
            (429, Reason::TooManyRequests, "in a moment"),
        ] {
            let said = of(code, reason, "no");
            assert!(said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn hints_name_the_impersonated_user_whose_right_is_missing() {
        let hints = |message: &str| {
            let status = Status::failure(403, Reason::Forbidden, message);
            explain(&Error::Status(Box::new(status)), "https://h", Some("bob")).hints.join(" | ")
        };
        let said = hints("User \"bob\" cannot list resource");
        assert!(said.contains("made as bob") && said.contains("omit --as"), "{said}");
        let said = hints("User \"ada\" cannot impersonate resource");
        assert!(said.contains("requires the verb") && said.contains("omit --as"), "{said}");
        assert!(!said.contains("whoami"), "it would be refused, too: {said}");
    }

    #[test]
    fn refused_fields_are_named_as_the_flags_that_set_them() {
        let said = |fields: &[&str]| {
            let mut status = Status::failure(422, Reason::Invalid, "Team \"t\" is invalid: …");
            let cause = |field: &&str| StatusCause {
                field: (*field).to_owned(),
                message: "Not found".to_owned(),
                ..StatusCause::default()
            };
            let causes = fields.iter().map(cause).collect();
            status.details = Some(StatusDetails { causes, ..StatusDetails::default() });
            let error = Error::Status(Box::new(status));
            let flags = [("spec.users", "--users"), ("spec.access.teams", "--team")];
            by_flags(explain(&error, "https://h", None), &error, &flags).message
        };
        assert_eq!(said(&["spec.users[0]"]), "--users: Not found");
        let both = "--users: Not found; --team: Not found";
        assert_eq!(said(&["spec.users[12]", "spec.access[1].teams[0]"]), both);
        assert!(said(&["spec.users[0]", "spec.other"]).contains("is invalid"));
        assert!(said(&[]).contains("is invalid"));
    }

    #[test]
    fn control_characters_of_the_server_are_escaped() {
        let said = of(400, Reason::BadRequest, "a\u{1b}[2Jb");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}
