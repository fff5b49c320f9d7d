//! What a failed request means to the person who made it, and what he can do next.

use std::io::ErrorKind;

use postern_client::{CertificateProblem, Error};
use postern_meta::status::{Reason, Status};

use crate::connect::LOG_IN;
use crate::failure::Failure;
use crate::output::tame;

/// The error for people. `server` is where the request went, `acting_as` whom it was made as, if
/// not as the key's own bearer.
pub(crate) fn explain(error: &Error, server: &str, acting_as: Option<&str>) -> Failure {
    let failure = Failure::new(tame(&error.to_string()));
    match error {
        Error::Status(status) => of_status(status, server, acting_as),
        Error::Resolve { .. } => failure.hint("check the host's name, and that the network is up"),
        Error::Connect { source, .. } if source.kind() == ErrorKind::ConnectionRefused => failure
            .hint("nothing listens there: is the server running, and is the port right?")
            .hint("`postern serve` listens on port 8443 unless it is told otherwise"),
        Error::Connect { .. } | Error::Timeout { .. } => {
            failure.hint("check the address, the network, and that the server is up")
        }
        Error::Handshake { .. } => {
            failure.hint("something else may be listening there: check host and port")
        }
        Error::Certificate { problem, .. } => of_certificate(failure, problem),
        Error::Lost { .. } => {
            failure.hint("whether a change took effect is not known: look before you try again")
        }
        Error::Unexpected { .. } => {
            failure.hint(format!("is there really a Postern at {server}, without a proxy between?"))
        }
        Error::Key => failure.hint(LOG_IN),
        Error::Trust(_) => failure.hint("--ca-file takes a file with certificates in PEM"),
        Error::Impersonation(_) => failure.hint(
            "it was asked for by --as and its like, or by `as` and its like in the kubeconfig",
        ),
        Error::TooLarge { .. } | Error::Name(_) => failure,
    }
}

fn of_certificate(failure: Failure, problem: &CertificateProblem) -> Failure {
    match problem {
        CertificateProblem::UnknownIssuer => failure
            .hint("give the server's certificate authority with --ca-file FILE, and log in again")
            .hint(
                "on the server it is DIR/keys/tls-ca.pem; it also stands in DIR/admin.kubeconfig",
            ),
        CertificateProblem::WrongName => failure
            .hint("use a name that the certificate is for, or start the server with --host NAME"),
        CertificateProblem::WrongTime => {
            failure.hint("check the clocks of both machines, and the server's certificate")
        }
        CertificateProblem::Other(_) => {
            failure.hint("whoever runs the server has to look at its certificate")
        }
    }
}

fn of_status(status: &Status, server: &str, acting_as: Option<&str>) -> Failure {
    let message = tame(&status.message);
    match (status.code, status.reason) {
        (401, _) => of_refused_key(&message, server),
        (403, _) => of_forbidden(message, acting_as),
        (404, _) => of_missing(message, status),
        (_, Reason::AlreadyExists) => {
            Failure::new(message).hint("nothing was changed; choose another name")
        }
        (409, _) => Failure::new(message)
            .hint("nothing was changed: somebody else was faster; look at it, and try again"),
        (400 | 413 | 422, _) => {
            Failure::new(message).hint("nothing was changed: correct it, and try again")
        }
        (429, _) => {
            Failure::new(format!("the server is too busy: {message}")).hint("try again in a moment")
        }
        (503, _) => Failure::new(format!("the server cannot do this now: {message}"))
            .hint("try again in a moment; if that does not help, its log says more"),
        (500.., _) => {
            Failure::new(format!("the server failed: {message}")).hint("its log says more")
        }
        _ => Failure::new(message),
    }
}

/// It is one thing not to have a right, and another to act as somebody who has not.
fn of_forbidden(message: String, acting_as: Option<&str>) -> Failure {
    let may_not_act = message.contains("cannot impersonate");
    let failure = Failure::new(message);
    let Some(user) = acting_as else {
        return failure
            .hint("your access key may not do this: `postern whoami` tells whose it is")
            .hint("ask an administrator, or the owner of the object, for the right");
    };
    let failure = if may_not_act {
        failure.hint("to act as somebody else takes a right: ask an administrator for it")
    } else {
        failure.hint(format!(
            "it was asked for as {}: with his rights alone, in the scope of your access key",
            tame(user)
        ))
    };
    failure.hint("to act as yourself, leave out --as, or take `as` out of the kubeconfig's user")
}

fn of_missing(message: String, status: &Status) -> Failure {
    let kind = status.details.as_ref().map_or("", |details| details.kind.as_str());
    let failure = Failure::new(message);
    match kind {
        "namespaces" => {
            failure.hint("name another with -n, or make it with `kubectl create namespace NAME`")
        }
        "sharedsecrets" => failure.hint("`postern list secrets -A` shows what there is"),
        "ownedaccesskeys" => failure.hint("`postern list accesskeys` shows what there is"),
        "users" | "teams" => failure.hint(format!("`postern list {kind}` shows what there is")),
        _ => failure,
    }
}

fn of_refused_key(message: &str, server: &str) -> Failure {
    let says = |word: &str| message.contains(word);
    let again = format!("then log in with it: `postern login {server} --access-key -`");
    if says("expired") {
        Failure::new(message.to_owned())
            .hint("the key's life is over: have a new one made with `postern create accesskey`")
            .hint(again)
    } else if says("disabled") {
        Failure::new(message.to_owned())
            .hint(
                "the key, or its owner, is switched off: whoever manages it can run \
                 `postern enable accesskey NAME`",
            )
            .hint(format!("or get another key, {again}"))
    } else {
        Failure::new(format!("the server does not accept the access key: {message}"))
            .hint("it may be mistyped, replaced by `postern rotate accesskey`, or deleted")
            .hint(format!("get the right one, {again}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, reason: Reason, message: &str) -> String {
        let error = Error::Status(Box::new(Status::failure(code, reason, message)));
        let failure = explain(&error, "https://h", None);
        format!("{} | {}", failure.message, failure.hints.join(" | "))
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        for (message, wanted) in [
            ("access key expired", "create accesskey"),
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
    fn who_acts_as_somebody_else_is_told_whose_right_is_missing() {
        let hints = |message: &str| {
            let status = Status::failure(403, Reason::Forbidden, message);
            explain(&Error::Status(Box::new(status)), "https://h", Some("bob")).hints.join(" | ")
        };
        let said = hints("User \"bob\" cannot list resource");
        assert!(said.contains("asked for as bob") && said.contains("leave out --as"), "{said}");
        let said = hints("User \"ada\" cannot impersonate resource");
        assert!(said.contains("takes a right") && said.contains("leave out --as"), "{said}");
        assert!(!said.contains("whoami"), "it would be refused, too: {said}");
    }

    #[test]
    fn the_servers_words_cannot_move_the_cursor() {
        let said = of(400, Reason::BadRequest, "a\u{1b}[2Jb");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}
