//! The command of a request that starts one in a pod, as audit records have it. It is the values of
//! `command` in the query of exec and attach, in order.

use percent_encoding::percent_decode_str;

use crate::attributes::Attributes;
use crate::credential_text::{has_jwt, may_have_access_key};
use crate::kube_request::KubeRequest;

/// Bytes of all words that are recorded.
pub const MAX_COMMAND_BYTES: usize = 2048;

/// The subresources that start a process in a pod, or join one.
const SUBRESOURCES: [&str; 2] = ["exec", "attach"];

/// The parameter that has one word of the command.
const COMMAND: &str = "command";

/// The annotation with the words.
const COMMAND_ANNOTATION: &str = "platform.sh/exec-command";

/// The annotation of a record that has not the whole command.
const COMMAND_CUT_ANNOTATION: &str = "platform.sh/exec-command-cut";

/// The placeholder for a word that may contain a credential.
const LEFT_OUT: &str = "(left-out)";

/// A command as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecCommand {
    /// Its words, in order, with at most [`MAX_COMMAND_BYTES`] together.
    pub words: Vec<String>,
    /// Whether the command is longer than that. The last word is then cut, or words are left out.
    pub is_cut: bool,
}

impl ExecCommand {
    /// The annotations of an audit record that has this command: its words as an array in JSON, and whether it is
    /// longer. A word that may contain a credential is left out.
    pub fn annotations(&self) -> impl Iterator<Item = (&'static str, String)> {
        let is_credential = |word: &str| may_have_access_key(word) || has_jwt(word);
        let recorded = |word: &String| if is_credential(word) { LEFT_OUT } else { word }.to_owned();
        let words: Vec<_> = self.words.iter().map(recorded).collect();
        let text = serde_json::Value::from(words).to_string();
        let cut = self.is_cut.then(|| (COMMAND_CUT_ANNOTATION, "true".to_owned()));
        [(COMMAND_ANNOTATION, text)].into_iter().chain(cut)
    }
}

/// The command that a request starts in a pod; `None` for a request that starts none.
pub fn exec_command(request: &KubeRequest) -> Option<ExecCommand> {
    let Attributes::Resource { group: "", resource: "pods", subresource, .. } =
        request.attributes()
    else {
        return None;
    };
    if !SUBRESOURCES.contains(&subresource) {
        return None;
    }
    let (_, query) = request.path_and_query().split_once('?')?;
    let command = of_query(query);
    (!command.words.is_empty()).then_some(command)
}

/// The command in a query, as [`KubeRequest::path_and_query`] writes it.
fn of_query(query: &str) -> ExecCommand {
    let (mut command, mut left_bytes) = (ExecCommand::default(), MAX_COMMAND_BYTES);
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if percent_decode_str(name).decode_utf8_lossy() != COMMAND {
            continue;
        }
        if left_bytes == 0 {
            command.is_cut = true;
            break;
        }
        let word = percent_decode_str(value).decode_utf8_lossy();
        let end = word.floor_char_boundary(left_bytes);
        command.is_cut |= end < word.len();
        if end > 0 || word.is_empty() {
            command.words.push(word[..end].to_owned());
        }
        if command.is_cut {
            break;
        }
        // An empty word takes a place, too: there must not be any number of them.
        left_bytes = left_bytes.saturating_sub(end.max(1));
    }
    command
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(target: &str) -> Option<(String, bool)> {
        let (parts, ()) = Request::get(target).body(()).unwrap().into_parts();
        let request = KubeRequest::parse(&parts, parts.uri.path()).unwrap();
        exec_command(&request).map(|command| (command.words.join("|"), command.is_cut))
    }

    #[test]
    fn the_command_of_exec_and_attach_is_recorded_and_nothing_else_of_a_query() {
        let pod = "/api/v1/namespaces/n/pods/p";
        for (path, want) in [
            (
                "/exec?command=sh&command=-c&stdin=true&command=ls+-l%20%26%3D&x=y",
                Some("sh|-c|ls -l &="),
            ),
            ("/exec?c%6fmmand=id&container=c", Some("id")),
            ("/exec?command=&command=a", Some("|a")),
            ("/attach?command=x", Some("x")),
            ("/attach?stdin=true", None),
            ("/exec", None),
            ("/log?command=x", None),
            ("?command=x", None),
        ] {
            let found = of(&format!("{pod}{path}"));
            assert_eq!(found, want.map(|want| (want.to_owned(), false)), "{path}");
        }
        assert_eq!(
            of("/apis/x/v1/namespaces/n/pods/p/exec?command=x"),
            None,
            "no pod of Kubernetes"
        );
    }

    #[test]
    fn a_long_command_is_cut_between_characters_and_says_so() {
        let exec = "/api/v1/namespaces/n/pods/p/exec?command=sh&command=";
        let (fits, longer) = ("a".repeat(MAX_COMMAND_BYTES - 2), "a".repeat(MAX_COMMAND_BYTES - 1));
        assert_eq!(of(&format!("{exec}{fits}")), Some((format!("sh|{fits}"), false)));
        assert_eq!(of(&format!("{exec}{longer}")), Some((format!("sh|{fits}"), true)));
        assert_eq!(of(&format!("{exec}{fits}&command=x")), Some((format!("sh|{fits}"), true)));
        let (_, is_cut) = of(&format!("{exec}{}", "%C3%A4".repeat(2000))).unwrap();
        assert!(is_cut);
        let words = of_query(&"command=&".repeat(10_000)).words;
        assert_eq!(words.len(), MAX_COMMAND_BYTES);
    }

    proptest::proptest! {
        #[test]
        fn what_is_recorded_is_bounded_and_the_beginning_of_what_was_sent(
            words in proptest::collection::vec("\\PC{0,600}", 0..12),
        ) {
            let pairs = words.iter().map(|word| {
                let word = percent_encoding::utf8_percent_encode(word, percent_encoding::NON_ALPHANUMERIC);
                format!("command={word}")
            });
            let found = of_query(&pairs.collect::<Vec<_>>().join("&"));
            let bytes: usize = found.words.iter().map(String::len).sum();
            proptest::prop_assert!(bytes <= MAX_COMMAND_BYTES);
            if found.is_cut {
                let last = found.words.len().saturating_sub(1);
                proptest::prop_assert!(
                    found.words.iter().zip(&words).take(last).all(|(one, sent)| one == sent)
                );
                proptest::prop_assert!(found.words.last().is_none_or(|cut| words[last].starts_with(cut)));
            } else if !words.is_empty() {
                proptest::prop_assert_eq!(found.words, words);
            }
        }
    }
}
