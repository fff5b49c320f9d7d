//! The values of secrets as environment variables: their names, and their text for shells and `.env` files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clap::Args;
use postern_kinds::SecretText;
use zeroize::Zeroizing;

use crate::base64_text;
use crate::error::CliError;
use crate::output::escape;
use crate::parse;
use crate::startup_variables::is_startup_variable;

/// The values of a secret in base64, by their keys.
pub(crate) type Data = BTreeMap<String, SecretText>;

/// Which variables the keys of secrets become.
#[derive(Args, Clone, Debug, Default)]
#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
pub(crate) struct VariableFlags {
    /// Put this before the name of each variable: --prefix DB_
    #[arg(long, value_name = "TEXT", value_parser = prefix)]
    prefix: Option<String>,

    /// The variable of a key: --map tls.crt=TLS_CERT. Without a name the key is left out: --map tls.crt=.
    /// It has no prefix; may be repeated
    #[arg(long, value_name = "KEY=NAME", value_parser = mapping)]
    map: Vec<(String, String)>,

    /// Take only these keys, and those of --map: --only user,password. Without it, users with the
    /// right to change the secret can add variables
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = parse::data_key)]
    only: Vec<String>,
}

/// A variable. This program prints its value only if the user asks for it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// The name.
    pub(crate) name: String,
    value: Zeroizing<Vec<u8>>,
}

/// Without the value.
impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variable").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Variable {
    /// The value, for the environment of a command and never for a message.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.value
    }
}

impl VariableFlags {
    /// Whether any flag is given.
    pub(crate) fn is_used(&self) -> bool {
        self.prefix.is_some() || !self.map.is_empty() || !self.only.is_empty()
    }

    /// Refuses flags that contradict each other.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        let mut keys = BTreeSet::new();
        match self.map.iter().find(|(key, _)| !keys.insert(key)) {
            None => Ok(()),
            Some((key, _)) => {
                let message = format!("--map {}= is given twice", escape(key));
                Err(CliError::usage(message).hint("a key becomes one variable"))
            }
        }
    }

    /// The variables of several secrets, each with its name, in the order of their names.
    ///
    /// # Errors
    /// For names that are no variables, and for names that change how programs start and are not in
    /// `--map`. Also for names that occur twice, keys in flags that no secret has, and values that
    /// no variable can have.
    pub(crate) fn variables(&self, secrets: &[(&str, &Data)]) -> Result<Vec<Variable>, CliError> {
        self.check_keys_exist(secrets)?;
        let mut variables: BTreeMap<String, Variable> = BTreeMap::new();
        let (mut unfit, mut refused) = (Vec::new(), Vec::new());
        for (secret, data) in secrets {
            for (key, value) in *data {
                let mapped = self.mapped(key);
                let name = match mapped {
                    Some("") => continue,
                    Some(name) => name.to_owned(),
                    None if !self.only.is_empty() && !self.only.contains(key) => continue,
                    None => format!("{}{key}", self.prefix.as_deref().unwrap_or_default()),
                };
                if !is_variable_name(&name) {
                    unfit.push(key.as_str());
                    continue;
                }
                if mapped.is_none() && is_startup_variable(&name) {
                    refused.push((key.as_str(), name));
                    continue;
                }
                let value = decoded(secret, key, value)?;
                if variables.insert(name.clone(), Variable { name: name.clone(), value }).is_some()
                {
                    return Err(twice(&name, key));
                }
            }
        }
        if !refused.is_empty() {
            return Err(refused_names(&refused));
        }
        if !unfit.is_empty() {
            return Err(self.unfit(&unfit));
        }
        Ok(variables.into_values().collect())
    }

    /// The name that `--map` gives to a key; empty if the key is left out.
    fn mapped(&self, key: &str) -> Option<&str> {
        self.map.iter().rfind(|(of, _)| of == key).map(|(_, name)| name.as_str())
    }

    /// Checks that the keys of `--map` and `--only` are in a secret.
    fn check_keys_exist(&self, secrets: &[(&str, &Data)]) -> Result<(), CliError> {
        let mapped = self.map.iter().map(|(key, _)| ("--map", key));
        let mut given = mapped.chain(self.only.iter().map(|key| ("--only", key)));
        let is_absent = |key: &str| !secrets.iter().any(|(_, data)| data.contains_key(key));
        match given.find(|(_, key)| is_absent(key)) {
            None => Ok(()),
            Some((flag, key)) => {
                let message = format!("{flag} {}: no secret has this key", escape(key));
                Err(CliError::new(message).hint("`postern get secret NAME` lists the keys"))
            }
        }
    }

    /// The error for keys that are no names of variables.
    fn unfit(&self, keys: &[&str]) -> CliError {
        let list = keys.iter().map(|key| escape(key)).collect::<Vec<_>>().join(", ");
        let message = format!("not the name of a variable: {list}");
        let first = keys.first().copied().unwrap_or_default();
        let name: String = first
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        let name = if is_variable_name(&name) { name } else { format!("_{name}") };
        let error = CliError::new(message)
            .hint("a variable has letters, digits and _, and does not begin with a digit")
            .hint(format!("give it a name: --map {}={name}", escape(first)))
            .hint(format!("or leave it out: --map {}=", escape(first)));
        let helps =
            self.prefix.is_none() && keys.iter().all(|k| is_variable_name(&format!("_{k}")));
        error.hint_if(helps, "or put a prefix before all names: --prefix SECRET_")
    }
}

/// The error for keys with variables that change how programs start.
fn refused_names(refused: &[(&str, String)]) -> CliError {
    let list = refused.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
    let message = format!("variables that change how programs start are not set: {list}");
    let error = CliError::new(message)
        .hint("name the keys that the command needs: --only KEY,KEY")
        .hint("a user who can change the secret can add such a key without reading the secret");
    match refused.first() {
        None => error,
        Some((key, name)) => {
            let key = escape(key);
            error
                .hint(format!("or leave it out: --map {key}="))
                .hint(format!("or set it if you trust every writer: --map {key}={name}"))
        }
    }
}

fn twice(name: &str, key: &str) -> CliError {
    CliError::new(format!("two keys become the variable {name}"))
        .hint(format!("name one of them with --map {}=OTHER_NAME", escape(key)))
}

fn decoded(secret: &str, key: &str, value: &SecretText) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let wrong =
        |what: &str| CliError::new(format!("the value of {} in {secret} {what}", escape(key)));
    let bytes = base64_text::decode(value.expose()).ok_or_else(|| wrong("is not base64"))?;
    let bytes = Zeroizing::new(bytes);
    if bytes.contains(&0) {
        let hint = format!("leave it out: --map {}=", escape(key));
        return Err(wrong("has a zero byte, which no variable can have").hint(hint));
    }
    Ok(bytes)
}

/// Whether shells and programs can have a variable of this name.
fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn prefix(text: &str) -> Result<String, String> {
    let wrong = "a prefix has letters, digits and _, and does not begin with a digit";
    if is_variable_name(text) { Ok(text.to_owned()) } else { Err(wrong.to_owned()) }
}

fn mapping(text: &str) -> Result<(String, String), String> {
    let (key, name) = text.split_once('=').ok_or("write it as KEY=NAME")?;
    let key = parse::data_key(key)?;
    if !name.is_empty() && !is_variable_name(name) {
        return Err(
            "a variable has letters, digits and _, and does not begin with a digit".to_owned()
        );
    }
    Ok((key, name.to_owned()))
}

/// Lines that a shell reads: `export NAME='value'`.
pub(crate) fn shell_lines(variables: &[Variable]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::new());
    for variable in variables {
        out.extend_from_slice(b"export ");
        out.extend_from_slice(variable.name.as_bytes());
        out.extend_from_slice(b"='");
        for byte in variable.expose() {
            match byte {
                b'\'' => out.extend_from_slice(b"'\\''"),
                byte => out.push(*byte),
            }
        }
        out.extend_from_slice(b"'\n");
    }
    out
}

/// Whether a value can be between single quotes, where readers of `.env` files take it as it is. Between double quotes, they
/// differ in the characters that `special` has. With a line break, single quotes are used only for values with these.
fn fits_single_quotes(value: &str) -> bool {
    let special = ['"', '$', '`', '\\'];
    !value.contains(['\'', '\r']) && (!value.contains('\n') || value.contains(special))
}

/// Lines of a `.env` file: `NAME='value'` without any escapes, or `NAME="value"` with `\n` for a line break.
///
/// # Errors
/// For a value that is not UTF-8.
pub(crate) fn dotenv_lines(variables: &[Variable]) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let mut out = Zeroizing::new(String::new());
    for variable in variables {
        let value = std::str::from_utf8(variable.expose()).map_err(|_| {
            let message = format!("the value of {} is not UTF-8", variable.name);
            CliError::new(message).hint("-o env prints it byte for byte, and -o json in base64")
        })?;
        out.push_str(&variable.name);
        if fits_single_quotes(value) {
            out.extend(["='", value, "'\n"]);
            continue;
        }
        out.push_str("=\"");
        for c in value.chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '"' | '\\' | '$' | '`' => out.extend(['\\', c]),
                c => out.push(c),
            }
        }
        out.push_str("\"\n");
    }
    Ok(Zeroizing::new(out.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn data(pairs: &[(&str, &[u8])]) -> Data {
        let one = |(key, value): &(&str, &[u8])| {
            ((*key).to_owned(), SecretText::from(STANDARD.encode(value)))
        };
        pairs.iter().map(one).collect()
    }

    fn flags(prefix: Option<&str>, map: &[(&str, &str)]) -> VariableFlags {
        let map = map.iter().map(|(key, name)| ((*key).to_owned(), (*name).to_owned()));
        VariableFlags { prefix: prefix.map(str::to_owned), map: map.collect(), only: Vec::new() }
    }

    fn names(flags: &VariableFlags, secrets: &[(&str, &Data)]) -> Result<String, CliError> {
        let variables = flags.variables(secrets)?;
        let names: Vec<_> = variables.iter().map(|variable| variable.name.clone()).collect();
        Ok(names.join(" "))
    }

    #[test]
    fn keys_become_variables() {
        let db = data(&[("password", b"hush"), ("tls.crt", b"x"), ("user", b"ada")]);
        let other = data(&[("token", b"t")]);
        let both = [("db", &db), ("other", &other)];
        let map = [("tls.crt", "CERT")];
        assert_eq!(names(&flags(None, &map), &both).unwrap(), "CERT password token user");
        let prefixed = flags(Some("DB_"), &[("tls.crt", ""), ("user", "WHO")]);
        assert_eq!(names(&prefixed, &both[..1]).unwrap(), "DB_password WHO");
        assert_eq!(names(&flags(None, &[]), &[]).unwrap(), "");
        let variables = flags(None, &map).variables(&both[..1]).unwrap();
        assert_eq!(variables[1].expose(), b"hush");
        assert!(!format!("{variables:?}").contains("hush"), "{variables:?}");
    }

    #[test]
    fn only_the_keys_that_are_named_become_variables() {
        let db = data(&[("BASH_ENV", b"x"), ("tls.crt", b"x"), ("a-b", b"x"), ("user", b"ada")]);
        let only = |keys: &[&str], map: &[(&str, &str)]| VariableFlags {
            only: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..flags(Some("P_"), map)
        };
        let secrets = [("db", &db)];
        assert_eq!(names(&only(&["user"], &[]), &secrets).unwrap(), "P_user");
        let mapped = only(&["user"], &[("tls.crt", "CERT"), ("a-b", "")]);
        assert_eq!(names(&mapped, &secrets).unwrap(), "CERT P_user");
        let absent = names(&only(&["user", "none"], &[]), &secrets).unwrap_err();
        assert_eq!(absent.message, "--only none: no secret has this key");
    }

    #[test]
    fn a_key_that_changes_how_programs_start_is_refused_unless_it_is_mapped() {
        let db = data(&[("BASH_ENV", b"/tmp/x"), ("RELOAD", b"/tmp/x.so"), ("user", b"ada")]);
        let secrets = [("db", &db)];
        let refused = names(&flags(None, &[]), &secrets).unwrap_err();
        assert!(refused.message.ends_with(": BASH_ENV"), "{}", refused.message);
        let hints = refused.hints.join(" | ");
        for hint in ["--only KEY,KEY", "--map BASH_ENV= ", "--map BASH_ENV=BASH_ENV"] {
            assert!(hints.contains(hint), "{hint}: {hints}");
        }
        let mapped = flags(None, &[("BASH_ENV", "BASH_ENV"), ("RELOAD", "")]);
        assert_eq!(names(&mapped, &secrets).unwrap(), "BASH_ENV user");
        // The name counts, and not the key.
        assert_eq!(names(&flags(Some("A_"), &[]), &secrets).unwrap(), "A_BASH_ENV A_RELOAD A_user");
        let prefixed = names(&flags(Some("LD_P"), &[]), &secrets).unwrap_err();
        assert!(prefixed.message.contains("LD_PRELOAD"), "{}", prefixed.message);
        let only = VariableFlags { only: vec!["BASH_ENV".to_owned()], ..flags(None, &[]) };
        assert!(names(&only, &secrets).is_err());
        let only = VariableFlags { only: vec!["user".to_owned()], ..flags(None, &[]) };
        assert_eq!(names(&only, &secrets).unwrap(), "user");
    }

    #[test]
    fn what_is_no_variable_says_what_to_do() {
        let said = |flags: &VariableFlags, data: &Data| {
            let error = names(flags, &[("db", data)]).unwrap_err();
            assert!(!format!("{error:?}").contains("hush"), "{error:?}");
            format!("{} | {}", error.message, error.hints.join(" | "))
        };
        let none = flags(None, &[]);
        let error = said(&none, &data(&[("tls.crt", b"hush"), ("a-b", b"hush")]));
        assert!(error.contains("a-b, tls.crt") && error.contains("--map a-b=A_B"), "{error}");
        assert!(error.contains("--map a-b= ") || error.ends_with("--map a-b="), "{error}");
        assert!(!error.contains("--prefix"), "a prefix does not help: {error}");
        let error = said(&none, &data(&[("1st", b"hush")]));
        assert!(error.contains("--prefix") && error.contains("--map 1st=_1ST"), "{error}");
        let error = said(&flags(None, &[("b", "a")]), &data(&[("a", b"hush"), ("b", b"hush")]));
        assert!(error.contains("two keys become the variable a"), "{error}");
        let error = said(&flags(None, &[("absent", "X")]), &data(&[("a", b"hush")]));
        assert!(error.contains("--map absent: no secret has this key"), "{error}");
        let error = said(&none, &data(&[("a", b"hu\0sh")]));
        assert!(error.contains("zero byte"), "{error}");
    }

    #[test]
    fn lines_for_shells_and_files() {
        let data = data(&[("A", b"it's\n$x"), ("B", "\"\\é\r".as_bytes()), ("C", b"")]);
        let variables = flags(None, &[]).variables(&[("db", &data)]).unwrap();
        let shell = shell_lines(&variables);
        let wanted = "export A='it'\\''s\n$x'\nexport B='\"\\é\r'\nexport C=''\n";
        assert_eq!(std::str::from_utf8(&shell).unwrap(), wanted);
        let file = dotenv_lines(&variables).unwrap();
        let wanted = "A=\"it's\\n\\$x\"\nB=\"\\\"\\\\é\\r\"\nC=''\n";
        assert_eq!(std::str::from_utf8(&file).unwrap(), wanted);
        let quoted = self::data(&[("A", b"say \"hi\" $HOME `id`\n# x"), ("B", b"$it's")]);
        let quoted = flags(None, &[]).variables(&[("db", &quoted)]).unwrap();
        let wanted = "A='say \"hi\" $HOME `id`\n# x'\nB=\"\\$it's\"\n";
        assert_eq!(std::str::from_utf8(&dotenv_lines(&quoted).unwrap()).unwrap(), wanted);
        // Values that no reader needs an escape for.
        let plain =
            [("A", &b"C:\\new\\"[..]), ("B", b"plain # x"), ("C", b"a\nb"), ("D", b"a\n\\d")];
        let plain = flags(None, &[]).variables(&[("db", &self::data(&plain))]).unwrap();
        let wanted = "A='C:\\new\\'\nB='plain # x'\nC=\"a\\nb\"\nD='a\n\\d'\n";
        assert_eq!(std::str::from_utf8(&dotenv_lines(&plain).unwrap()).unwrap(), wanted);
        let binary = self::data(&[("A", &[0xff])]);
        let variables = flags(None, &[]).variables(&[("db", &binary)]).unwrap();
        assert_eq!(**shell_lines(&variables), b"export A='\xff'\n"[..]);
        assert!(dotenv_lines(&variables).unwrap_err().message.contains("UTF-8"));
    }

    #[test]
    fn flags_are_checked() {
        let twice = flags(None, &[("a", "X"), ("b", "Y"), ("a", "Z")]).check().unwrap_err();
        assert_eq!(twice.message, "--map a= is given twice");
        assert!(flags(Some("P_"), &[("a", "X"), ("b", "")]).check().is_ok());
        assert_eq!(mapping("tls.crt=CERT"), Ok(("tls.crt".to_owned(), "CERT".to_owned())));
        assert_eq!(mapping("a="), Ok(("a".to_owned(), String::new())));
        for wrong in ["a", "=A", "a=1", "a=b-c", "a/b=X"] {
            assert!(mapping(wrong).is_err(), "{wrong}");
        }
        assert!(prefix("DB_").is_ok() && prefix("1").is_err() && prefix("a-").is_err());
    }
}
