//! The output of the operator commands. It contains names of files and of stored objects. On a
//! terminal, an escape replaces each character that would control it. Elsewhere, each byte is
//! written as it is.

use std::io::{self, IsTerminal, Write};

use postern_cli::escape_lines;

/// Prints data on the standard output.
pub(crate) fn print_data(text: &str) -> io::Result<()> {
    print_to(&mut io::stdout().lock(), text)
}

/// Prints a line for the operator on the standard error. A failure to print is ignored: there is no other place for it.
pub(crate) fn print_message(text: &str) {
    let _ = print_to(&mut io::stderr().lock(), &format!("{text}\n"));
}

fn print_to(out: &mut (impl Write + IsTerminal), text: &str) -> io::Result<()> {
    if out.is_terminal() {
        out.write_all(escape_lines(text).as_bytes())?;
    } else {
        out.write_all(text.as_bytes())?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    /// The files of the program. The progress of a command has only numbers.
    const FILES: [(&str, &str); 8] = [
        ("agent.rs", include_str!("agent.rs")),
        ("client_flags.rs", include_str!("client_flags.rs")),
        ("health.rs", include_str!("health.rs")),
        ("lib.rs", include_str!("lib.rs")),
        ("main.rs", include_str!("main.rs")),
        ("migrate.rs", include_str!("migrate.rs")),
        ("operator.rs", include_str!("operator.rs")),
        ("settings.rs", include_str!("settings.rs")),
    ];

    #[test]
    fn no_other_file_prints() {
        for (name, text) in FILES {
            for line in text.lines().filter(|line| !line.contains("is_terminal()")) {
                let prints = ["io::stdout()", "io::stderr()", "println!", "print!("];
                let found = prints.iter().find(|call| line.contains(*call));
                assert_eq!(found, None, "{name}: {line}");
            }
        }
    }
}
