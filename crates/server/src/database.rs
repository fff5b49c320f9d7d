//! Opens the database and its seal, for the server and for the administrator's commands.

use anyhow::Context as _;
use postern_store::Options;
use postern_store::seal::{Keyring, Sealed};

use crate::data_dir::DataDir;

/// Opens the database and its seal. A database without its keys does not start, and no new keys are
/// made for it: they would only hide that the old ones are missing.
///
/// # Errors
/// What is missing or cannot be used, and what to do.
pub(crate) async fn open(dir: &DataDir, cache_bytes: usize) -> anyhow::Result<Sealed> {
    let (database, keys) = (dir.database(), dir.seal_keys());
    // The kubeconfig is written after the database, so a kubeconfig alone means that the database
    // was lost.
    let exists = std::fs::metadata(&database).is_ok_and(|file| file.len() > 0);
    anyhow::ensure!(
        exists || !dir.admin_kubeconfig().try_exists()?,
        "the database {} is missing or empty, and {} is left of an earlier start: restore the \
         database, or remove the kubeconfig to start with a new database",
        database.display(),
        dir.admin_kubeconfig().display()
    );
    let keyring = match (database.try_exists()?, keys.try_exists()?) {
        (_, true) => Keyring::load(&keys),
        (false, false) => Keyring::create(&keys),
        (true, false) => anyhow::bail!(
            "the database {} is sealed, and its keys {} are missing: put them back (or point \
             --key-dir at them); without them nothing in it can be read",
            database.display(),
            keys.display()
        ),
    };
    let keyring =
        keyring.with_context(|| format!("cannot use the seal keys {}", keys.display()))?;
    let store = postern_store::open(&database, Options { cache_bytes })
        .await
        .with_context(|| format!("cannot open the database {}", database.display()))?;
    Ok(Sealed::open(store, keyring).await?)
}
