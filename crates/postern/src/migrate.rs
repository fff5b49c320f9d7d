//! `postern storage migrate` and `postern storage new-epoch`: commands on stores that several servers share.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use postern_server::System;
use postern_server::admin::{Location, Migrated, Migration, migrate, new_epoch};

use crate::etcd_flags::EtcdFlags;
use crate::keyring_flags::KeyringFlags;
use crate::print::{print_data, print_message};
use crate::progress::{block_on, with_progress};

/// `postern storage migrate`
#[derive(Args)]
pub(crate) struct Migrate {
    /// The source store: `file:DIR` with the data directory, or etcd://HOST:PORT,HOST:PORT/PREFIX
    #[arg(long, value_name = "STORE")]
    from: String,

    /// The target store, in the same form as --from. It must be empty
    #[arg(long, value_name = "STORE")]
    to: String,

    #[command(flatten)]
    keys: KeyringFlags,

    /// Check both stores and say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    etcd: EtcdFlags,
}

impl Migrate {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { from, to, keys, dry_run, etcd } = self;
        let location = |flag: &str, text: &str| -> anyhow::Result<Location> {
            if let Some(path) = text.strip_prefix("file:") {
                anyhow::ensure!(!path.is_empty(), "{flag} names no directory: pass file:DIR");
                return Ok(Location::Directory(path.into()));
            }
            anyhow::ensure!(
                text.starts_with("etcd:"),
                "{flag} {text:?} is no store: pass file:DIR or etcd://HOST:PORT/PREFIX"
            );
            Ok(Location::Remote(etcd.engine(flag, text)?))
        };
        let (from, to) = (location("--from", &from)?, location("--to", &to)?);
        let keyring = keys.setting()?;
        let migration = Migration { from, to, key_dir: keys.key_dir, keyring, dry_run };
        let done = with_progress(|progress| {
            block_on(Box::pin(migrate(&migration, &System::default(), progress)))?
        })?;
        print_migrated(&migration, &done)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints one word on stdout, `planned`, `copied` or `moved`, and its explanation on stderr.
fn print_migrated(migration: &Migration, done: &Migrated) -> io::Result<()> {
    let (from, to) = (migration.from.name(), migration.to.name());
    let (word, text) = match done {
        Migrated::Planned { survey, is_online } => {
            let mut text = format!(
                "{} values with {} bytes would be copied from {from} to {to}. Nothing was changed.",
                survey.values, survey.bytes
            );
            if *is_online {
                let _ = write!(
                    text,
                    "\nServers run on {from}. The data can be moved only while none runs; before, it can be \
                     copied to etcd."
                );
            }
            ("planned", text)
        }
        Migrated::Copied(copied) => (
            "copied",
            format!(
                "{} values were compared: {} were put, {} were removed. Servers run on {from}, which stays in \
                 use.\nStop them, and run the same command again: it copies what has changed, and moves the data.",
                copied.values, copied.put, copied.removed
            ),
        ),
        Migrated::Moved { copied, verified, revision } => (
            "moved",
            format!(
                "{} values were put and {} were removed. All {} values ({} bytes) in {to} were compared with \
                 {from}.\nThe data was moved: no server starts on {from} any more. History in {to} begins at \
                 revision {revision}, so clients get 410 once, and list again.",
                copied.put, copied.removed, verified.values, verified.bytes
            ),
        ),
        Migrated::AlreadyMoved => {
            ("moved", format!("An earlier run has moved the data of {from} to {to}."))
        }
    };
    print_message(&text);
    print_data(&format!("{word}\n"))
}

/// `postern storage new-epoch`
#[derive(Args)]
pub(crate) struct NewEpoch {
    /// The store that several servers share, as etcd://HOST:PORT,HOST:PORT/PREFIX
    #[arg(long, env = "POSTERN_STORE", value_name = "URL")]
    store: String,

    #[command(flatten)]
    etcd: EtcdFlags,

    /// The highest resourceVersion that any client saw [default: begin 2^40 revisions above the present one]
    #[arg(long, value_name = "RESOURCE_VERSION")]
    above: Option<u64>,
}

impl NewEpoch {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { store, etcd, above } = self;
        let remote = etcd.store(Some(&store))?.context("--store")?;
        let begun = block_on(Box::pin(new_epoch(&*remote, above)))??;
        print_message(&format!(
            "Epoch {} has begun on {}: all resourceVersions from now on are greater than those that were given \
             out before. Start the servers. Clients get 410 once, and list again.",
            begun.number,
            remote.url()
        ));
        print_data(&format!("{}\n", begun.first_resource_version))?;
        Ok(ExitCode::SUCCESS)
    }
}
