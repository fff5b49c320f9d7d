//! Retired words, and their replacements. The field has its own words, which readers know from
//! Kubernetes, etcd or Vault.
//!
//! To retire a word, add it to [`RETIRED`]. How names and prose are told apart is in
//! [`super::prose`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use anyhow::Result;

use super::prose::{self, Text};
use super::{Finding, files};

/// Retired words, and their replacement.
struct Entry {
    /// Each a word, or the words of a name with spaces between them: `holds on` is in `holds_on`,
    /// `HOLDS_ON` and `HoldsOnTo`.
    words: &'static [&'static str],
    scope: Scope,
    say: &'static str,
    except: &'static [Except],
}

/// Where a word is not used. Only type names are compared with their case.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    /// Neither in prose nor as part of a name.
    Anywhere,
    /// Not as a separate word, in prose or as a whole name. It may be part of a name.
    WholeWords,
    /// Not in prose. A name may be it, or have it as a part, and so may data of the black-box tests.
    Prose,
    /// Not as part of a name. In prose it may be, and in the sentences that tests have as names.
    Names,
    /// Not as a whole name.
    WholeNames,
    /// Not as part of a name in camel case, written as it is here.
    TypeNames,
    /// Not as the first word of a doc comment, written as it is here.
    DocComments,
}

/// A name of more words is a sentence.
const NAME_WORDS_MAX: usize = 4;

/// Where a word may be used after all. A comment next to it says why.
enum Except {
    /// A file, by its path from the workspace's root; `**` is for any directories.
    Path(&'static str),
}

/// kube-apiserver's own words in the response of a health endpoint: "reason withheld".
const HEALTH: Except = Except::Path("crates/server/src/endpoints/health.rs");

const RETIRED: &[Entry] = &[
    Entry {
        words: &["beside"],
        scope: Scope::Anywhere,
        say: "`side record`, \"next to\", \"compared with\"",
        except: &[],
    },
    Entry { words: &["trail"], scope: Scope::Anywhere, say: "`AuditContext`", except: &[] },
    Entry {
        words: &["directions"],
        scope: Scope::Anywhere,
        say: "`AuditDecision`, or \"direction\"",
        except: &[],
    },
    Entry {
        words: &["lots", "crowd", "crowds", "squeeze", "squeezes", "squeezed", "squeezing"],
        scope: Scope::Anywhere,
        say: "\"many\", \"overload\", \"admission\"",
        except: &[],
    },
    Entry { words: &["People"], scope: Scope::TypeNames, say: "`PrincipalIndex`", except: &[] },
    Entry {
        words: &["standing"],
        scope: Scope::Names,
        say: "`ResolvedKey`, `OwnerState`",
        except: &[],
    },
    Entry { words: &["becoming"], scope: Scope::Names, say: "`ImpersonatedIdentity`", except: &[] },
    Entry { words: &["trouble"], scope: Scope::Names, say: "`OpenError`", except: &[] },
    Entry {
        words: &["withheld"],
        scope: Scope::Anywhere,
        say: "`write-only field`",
        except: &[HEALTH],
    },
    Entry { words: &["Kept"], scope: Scope::TypeNames, say: "`SecretRecord`", except: &[] },
    Entry { words: &["kept record"], scope: Scope::Names, say: "`secret_record`", except: &[] },
    Entry { words: &["holds on"], scope: Scope::Names, say: "`blocks_deletion`", except: &[] },
    Entry { words: &["instead"], scope: Scope::Names, say: "`delegated`", except: &[] },
    Entry {
        words: &["fresh"],
        scope: Scope::WholeNames,
        say: "`wait_until_current`, or what it is",
        except: &[],
    },
    Entry { words: &["tame"], scope: Scope::Anywhere, say: "`escape`", except: &[] },
    Entry { words: &["door", "doors"], scope: Scope::Anywhere, say: "`decoder`", except: &[] },
    Entry {
        words: &["settle"],
        scope: Scope::Anywhere,
        say: "`sync_and_read_ahead`, or what is done",
        except: &[],
    },
    Entry {
        words: &["shown"],
        scope: Scope::Names,
        say: "`display_name`, or what it is",
        except: &[],
    },
    Entry { words: &["news"], scope: Scope::Names, say: "`subscription`", except: &[] },
    Entry {
        words: &["Answers", "Returns"],
        scope: Scope::DocComments,
        say: "what the thing is, as in \"The tokens of one access key.\"",
        except: &[],
    },
    Entry {
        words: &["whoever", "somebody", "nobody", "everybody", "someone", "theirs"],
        scope: Scope::Prose,
        say: "the role: the caller, the client, the owner, the operator, the agent, no user",
        except: &[],
    },
    Entry {
        words: &["he", "him", "his", "himself", "she", "her", "hers", "herself"],
        scope: Scope::WholeWords,
        say: "\"they\", or who it is: \"the caller\", \"the owner\"",
        except: &[],
    },
];

/// The list itself.
const LIST: &str = "xtask/src/layout/words.rs";

/// Every line on which a retired word is used.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut paths = files::rust(root)?;
    paths.retain(|path| path != Path::new(LIST));
    paths.extend(files::documents(root)?);
    paths.extend(files::with_extension(root, "examples", "yaml")?);
    paths.extend(files::with_extension(root, "crates/audit/src", "yaml")?);
    let mut known = Known::default();
    let mut findings = Vec::new();
    for path in paths {
        findings.extend(check_text(&path, &files::read(root, &path)?, &mut known));
    }
    Ok(findings)
}

fn check_text(path: &Path, text: &str, known: &mut Known) -> Vec<Finding> {
    let lines: Vec<_> = text.lines().collect();
    let is_data = |line: usize| {
        let is_comment =
            lines.get(line - 1).is_some_and(|line| line.trim_start().starts_with("//"));
        path.starts_with("tests") && !is_comment
    };
    let text = Text::new(path, text);
    let names: HashSet<_> = text.names.iter().map(|(line, name)| (*line, name.as_str())).collect();
    let mut found = BTreeSet::new();
    for (candidates, scopes) in [
        (&text.words, &[Scope::Anywhere, Scope::WholeWords, Scope::Prose][..]),
        (&text.names, &[Scope::Names, Scope::WholeNames, Scope::TypeNames]),
        (&text.doc_comments, &[Scope::DocComments]),
    ] {
        for (line, word) in candidates {
            let entries = known.entries_with(word).iter();
            for entry in entries.filter(|entry| scopes.contains(&entry.scope)) {
                let is_no_prose = names.contains(&(*line, word.as_str())) || is_data(*line);
                let is_excepted = entry.scope == Scope::Prose && is_no_prose;
                if !is_excepted && !entry.is_excepted(path) {
                    let message = format!("`{word}` is not used any more: say {}", entry.say);
                    found.insert((*line, message));
                }
            }
        }
    }
    let finding = |(line, message)| Finding { path: path.to_path_buf(), line, message };
    found.into_iter().map(finding).collect()
}

/// The entries that words belong to, so that each word is compared only once: most are used in
/// many files.
#[derive(Default)]
struct Known(HashMap<String, Vec<&'static Entry>>);

impl Known {
    /// The entries that a word belongs to, where their scopes allow it.
    fn entries_with(&mut self, word: &str) -> &[&'static Entry] {
        if !self.0.contains_key(word) {
            let entries = RETIRED.iter().filter(|entry| entry.is_in(word)).collect();
            self.0.insert(word.to_owned(), entries);
        }
        self.0.get(word).map_or(&[], Vec::as_slice)
    }
}

impl Entry {
    fn is_excepted(&self, path: &Path) -> bool {
        self.except.iter().any(|except| match except {
            Except::Path(pattern) => matches(pattern, &path.to_string_lossy()),
        })
    }

    fn is_in(&self, word: &str) -> bool {
        self.words.iter().any(|retired| match self.scope {
            Scope::Anywhere | Scope::Names => {
                let segments = prose::segments(word);
                if self.scope == Scope::Names && segments.len() > NAME_WORDS_MAX {
                    return false;
                }
                let retired: Vec<_> = retired.split(' ').collect();
                segments.windows(retired.len()).any(|part| {
                    part.iter()
                        .zip(&retired)
                        .all(|(own, retired)| own.eq_ignore_ascii_case(retired))
                })
            }
            Scope::TypeNames => prose::segments(word).contains(retired),
            Scope::WholeWords | Scope::Prose | Scope::WholeNames => {
                word.eq_ignore_ascii_case(retired)
            }
            Scope::DocComments => word == *retired,
        })
    }
}

/// Whether a path is the one of a pattern, in which one `**/` is for any directories or none.
fn matches(pattern: &str, path: &str) -> bool {
    let Some((before, behind)) = pattern.split_once("**/") else { return pattern == path };
    path.strip_prefix(before).is_some_and(|rest| {
        rest.strip_suffix(behind).is_some_and(|middle| middle.is_empty() || middle.ends_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check_text(Path::new(path), text, &mut Known::default()).len()
    }

    /// Every entry finds each of its words where it looks for them, and only there.
    #[test]
    fn every_word_of_the_list_is_found_in_its_scope() {
        for entry in RETIRED {
            for word in entry.words {
                let snake = word.replace(' ', "_").to_lowercase();
                let parts = word.split(' ');
                let capital = |part: &str| part[..1].to_uppercase() + &part[1..].to_lowercase();
                let camel: String = parts.map(capital).collect();
                let prose = format!("// What {word} means.\n");
                let whole = format!("fn {snake}() {{}}\n");
                let part = format!("fn a_{snake}_b() {{}}\n");
                let type_name = format!("struct A{camel}B;\n");
                let doc = format!("/// {word} a thing.\nfn f() {{}}\n");
                let found = [&prose, &whole, &part, &type_name, &doc]
                    .map(|text| count("crates/x/src/lib.rs", text) > 0);
                let expected = match entry.scope {
                    Scope::Anywhere => [true; 5],
                    Scope::WholeWords => [true, true, false, false, true],
                    Scope::Prose => [true, false, false, false, true],
                    Scope::Names => [false, true, true, true, false],
                    Scope::WholeNames => [false, true, false, false, false],
                    Scope::TypeNames => [false, false, false, true, false],
                    Scope::DocComments => [false, false, false, false, true],
                };
                assert_eq!(found, expected, "{word}: prose, whole, part, type name, doc comment");
            }
        }
    }

    #[test]
    fn a_finding_says_where_and_what_to_say() {
        let found = "\nfn f(x: BesideNew) {}\nfn beside_new() {}\n";
        let found = check_text(Path::new("a.rs"), found, &mut Known::default());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let say = "is not used any more: say `side record`, \"next to\", \"compared with\"";
        assert_eq!(
            found,
            [format!("a.rs:2: `BesideNew` {say}"), format!("a.rs:3: `beside_new` {say}")]
        );
    }

    #[test]
    fn words_that_only_contain_a_retired_one_stay() {
        let text = "// The other theme: besides, hers is outdoors; they answer.\nfn besides() {}\n";
        assert_eq!(count("a.rs", &text.replace("hers", "others")), 0);
        assert_eq!(count("a.rs", text), 1);
        assert_eq!(count("a.rs", "fn what_is_never_shown_is_hidden() {}\n"), 0);
        assert_eq!(count("a.rs", "fn never_shown_to_anybody() {}\n"), 1);
    }

    #[test]
    fn documents_and_settings_are_read_too() {
        assert_eq!(count("docs/x.md", "What he keeps.\n\nHis `trail`.\n"), 3);
        assert_eq!(count("docs/x.md", "Use `instead` of this; instead of that.\n"), 1);
        assert_eq!(count("examples/x.yaml", "a: b # beside it, instead\n"), 1);
        assert_eq!(count("docs/x.md", "See [it](adr/0007-records-beside-objects.md).\n"), 0);
        assert_eq!(count("docs/x.md", "Records beside-objects.\n"), 1);
    }

    #[test]
    fn exceptions_are_for_their_files() {
        let (text, health) = ("// reason withheld\n", "crates/server/src/endpoints/health.rs");
        assert_eq!(count(health, text), 0);
        assert_eq!(count("crates/server/src/health.rs", text), 1);
        assert_eq!(count("crates/server/src/endpoints/unhealth.rs", text), 1);
        assert_eq!(count(health, "// Beside.\n"), 1);
    }
}
