//! The settings of the operator for the audit log.

use std::path::PathBuf;

/// Where records are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditLog {
    /// To stdout.
    Stdout,
    /// To a file, which is created if it does not exist.
    File(PathBuf),
}

/// The operator's settings for the audit log.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// Where records are written.
    pub log: AuditLog,
    /// The file of the policy; `None` for the built-in one.
    pub policy_file: Option<PathBuf>,
    /// The size above which a file is rotated, in bytes.
    pub max_file_bytes: u64,
    /// The most rotated files that are kept.
    pub max_rotated_files: usize,
    /// Whether a response with an object of a confidential kind waits until its record is in the file.
    pub before_answer: bool,
    /// Whether records of exec and attach contain the command.
    pub exec_commands: bool,
}
