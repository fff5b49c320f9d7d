//! `cargo xtask image`: an OCI image as one archive, without a builder and without a container
//! daemon.
//!
//! The image has the program, the system libraries that it is linked to ([`libraries`]), and a few
//! further files. A resolver and a TLS client read those files. It has no shell. [`layout`] writes
//! the image as OCI's specification says.

mod layout;
mod libraries;

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::artefacts::archive::{self, Entry};
use crate::artefacts::release::PACKAGE;
use crate::artefacts::sbom::Component;
use crate::dist::{self, Options, Parts};
use libraries::SystemFiles;

/// The number of the user and of the group that the program runs as.
const USER: u64 = 65532;

/// The directory of the volume.
const VOLUME: &str = "/var/lib/postern";

/// A second directory that a volume may be mounted at, for the keyring.
const KEYS: &str = "/var/lib/postern-keys";

/// The certificate authorities that Debian trusts, in the same place on this machine and in the image.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The Debian package of the authorities.
const AUTHORITIES_PACKAGE: &str = "ca-certificates";

/// The directory of the documents.
const DOCUMENTS: &str = "usr/share/doc/postern";

/// Builds the image.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let parts = Parts::prepare(root, options)?;
    let mut system = libraries::of(&parts.program.path)?;
    if Path::new(AUTHORITIES).exists() {
        system.add_file(Path::new(AUTHORITIES), AUTHORITIES_PACKAGE)?;
    } else {
        println!("    warning: no {AUTHORITIES} on this machine, so the image trusts no authority");
    }
    let mut entries =
        vec![Entry::program(format!("usr/bin/{PACKAGE}"), parts.program.bytes.clone())];
    entries.extend(files_of_a_system());
    entries.extend(system.entries()?);
    entries.extend(documents(root, &parts, &system)?);
    let layer = archive::tar(entries, parts.release.epoch)?;
    let image = layout::archive(&parts.release, &layer)?;
    parts.publish(&format!("{PACKAGE}-{}-oci.tar", parts.release.version), &image)
}

/// Names of the user, sources of host names, mount points, and the directories that may be written to.
fn files_of_a_system() -> Vec<Entry> {
    let users = format!(
        "root:x:0:0:root:/:/sbin/nologin\npostern:x:{USER}:{USER}:postern:{VOLUME}:/sbin/nologin\n"
    );
    let mut entries = vec![
        Entry::file("etc/passwd", users),
        Entry::file("etc/group", format!("root:x:0:\npostern:x:{USER}:\n")),
        Entry::file("etc/nsswitch.conf", "hosts: files dns\n"),
        Entry::directory("tmp").mode(0o1777),
    ];
    entries.extend(["dev", "proc", "sys"].map(Entry::directory));
    let own =
        |path: &str| Entry::directory(path.trim_start_matches('/')).mode(0o700).owned_by(USER);
    entries.extend([VOLUME, KEYS].map(own));
    entries
}

/// The licences, and the components of the image.
fn documents(root: &Path, parts: &Parts, system: &SystemFiles) -> Result<Vec<Entry>> {
    let licence = std::fs::read(root.join("LICENSE")).context("cannot read LICENSE")?;
    let packages = system.packages();
    let components: Vec<_> = packages
        .map(|package| Component::debian(&package.name, &package.version, &package.architecture))
        .collect();
    let bom = parts.bill_of_materials(&components)?;
    let mut entries = vec![
        Entry::file("LICENSE", licence),
        Entry::file("LICENSES-third-party.txt", parts.licences.clone()),
        Entry::file("system-libraries.txt", system.note()),
        Entry::file("sbom.cdx.json", bom),
    ];
    entries.extend(dist::standard_library_licences()?);
    Ok(entries.into_iter().map(|entry| entry.below(DOCUMENTS)).collect())
}
