//! Running other programs, with their output printed as it comes, and finding them. Which programs
//! are needed is not known here.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The directory of the workspace, for a command in any directory of it. Cargo names it at run
/// time. Its location at build time is wrong if two checkouts share a target directory.
pub(crate) fn workspace_root() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR");
    Path::new(&own.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask's own directory has no parent")
}

/// The `cargo` that runs us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The directory where cargo puts its output.
pub(crate) fn target_directory(root: &Path) -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// Runs a command to the end with the output going straight through. An error names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let command_line = describe(command);
    println!("    $ {command_line}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("`{command_line}` could not be started"))?;
    if !status.success() {
        bail!("`{command_line}` failed: {status}");
    }
    Ok(())
}

/// Runs like [`run`], and calls `look` with every line before it is printed. With `errors` it reads
/// the standard error, otherwise the standard output.
pub(crate) fn run_watching(
    command: &mut Command,
    errors: bool,
    mut look: impl FnMut(&str),
) -> Result<()> {
    let command_line = describe(command);
    println!("    $ {command_line}");
    command.stdin(Stdio::null());
    let mut child =
        if errors { command.stderr(Stdio::piped()) } else { command.stdout(Stdio::piped()) }
            .spawn()
            .with_context(|| format!("`{command_line}` could not be started"))?;
    let lines: Box<dyn std::io::Read> = match (child.stdout.take(), child.stderr.take()) {
        (Some(output), _) => Box::new(output),
        (None, Some(output)) => Box::new(output),
        (None, None) => bail!("`{command_line}` has no output to read"),
    };
    for line in BufReader::new(lines).lines() {
        let line =
            line.with_context(|| format!("the output of `{command_line}` could not be read"))?;
        look(&line);
        println!("{line}");
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{command_line}` failed: {status}");
    }
    Ok(())
}

/// Whether the program can be started with these arguments and ends with success.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a program, and returns its standard output, trimmed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let command_line = describe(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{command_line}` could not be started"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{command_line}` failed: {}\n{}", output.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words =
        vec![program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}
