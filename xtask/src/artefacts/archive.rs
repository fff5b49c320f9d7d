//! Reproducible archives: the bytes depend on nothing but the entries. The entries are sorted, with
//! one time and without names of users. The compression stores neither the time nor the name of a
//! file.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The mode of a directory, and of a program.
const OPEN: u32 = 0o755;

/// The mode of a file that only is read.
const READABLE: u32 = 0o644;

/// A file or a directory of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The path, relative and without a slash at the end.
    path: String,
    mode: u32,
    /// The number of the user and of the group.
    owner: u64,
    /// The bytes of a file. A directory has none.
    content: Option<Vec<u8>>,
}

impl Entry {
    /// A file that everyone may read.
    pub(crate) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: READABLE, owner: 0, content: Some(content.into()) }
    }

    /// A file that everyone may execute.
    pub(crate) fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { mode: OPEN, ..Self::file(path, content) }
    }

    /// A directory. Only directories that are empty, or that have another mode or owner, need an
    /// entry.
    pub(crate) fn directory(path: impl Into<String>) -> Self {
        Self { path: path.into(), mode: OPEN, owner: 0, content: None }
    }

    /// The same entry with another mode.
    pub(crate) fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// The same entry, with this number as its user and its group.
    pub(crate) fn owned_by(self, owner: u64) -> Self {
        Self { owner, ..self }
    }

    /// The same entry in a directory.
    pub(crate) fn below(self, directory: &str) -> Self {
        Self { path: format!("{directory}/{}", self.path), ..self }
    }

    fn header(&self, epoch: u64) -> Result<Header> {
        let mut header = Header::new_ustar();
        let (kind, path) = match self.content {
            Some(_) => (EntryType::Regular, self.path.clone()),
            None => (EntryType::Directory, format!("{}/", self.path)),
        };
        header.set_entry_type(kind);
        header.set_path(&path).with_context(|| format!("{path} cannot be in an archive"))?;
        header.set_mode(self.mode);
        header.set_uid(self.owner);
        header.set_gid(self.owner);
        header.set_mtime(epoch);
        header.set_size(self.content.as_ref().map_or(0, |content| content.len() as u64));
        header.set_cksum();
        Ok(header)
    }
}

/// A tar archive. Directories on the way to an entry are added.
pub(crate) fn tar(entries: Vec<Entry>, epoch: u64) -> Result<Vec<u8>> {
    let mut sorted = BTreeMap::new();
    for entry in entries {
        let path = entry.path.clone();
        let twice = sorted.insert(path.clone(), entry).is_some();
        ensure!(!twice, "{path} would be twice in the archive");
    }
    for path in sorted.keys().cloned().collect::<Vec<_>>() {
        for (end, _) in path.match_indices('/') {
            let parent = &path[..end];
            sorted.entry(parent.to_owned()).or_insert_with(|| Entry::directory(parent));
        }
    }
    let mut builder = Builder::new(Vec::new());
    for entry in sorted.values() {
        let content = entry.content.as_deref().unwrap_or_default();
        builder.append(&entry.header(epoch)?, content)?;
    }
    Ok(builder.into_inner()?)
}

/// Compresses as gzip does, without the time and the name of a file.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The SHA-256 digest in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// The output of `tar --list --verbose`, and the content.
    fn listed(archive: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let header = entry.header();
            let numbers = [header.uid(), header.gid(), header.mtime()].map(Result::unwrap);
            let path = entry.path().unwrap().display().to_string();
            format!("{path} {:o} {numbers:?} {content}", header.mode().unwrap())
        });
        entries.collect()
    }

    fn entries() -> Vec<Entry> {
        vec![
            Entry::file("b/c/d", "text"),
            Entry::program("a", "run"),
            Entry::directory("tmp").mode(0o1777),
            Entry::directory("b").mode(0o700).owned_by(7),
            Entry::file("x", "y").below("b-2"),
        ]
    }

    #[test]
    fn entries_are_sorted_below_their_directories() {
        let archive = tar(entries(), 9).unwrap();
        assert_eq!(
            listed(&archive),
            [
                "a 755 [0, 0, 9] run",
                "b/ 700 [7, 7, 9] ",
                "b-2/ 755 [0, 0, 9] ",
                "b-2/x 644 [0, 0, 9] y",
                "b/c/ 755 [0, 0, 9] ",
                "b/c/d 644 [0, 0, 9] text",
                "tmp/ 1777 [0, 0, 9] ",
            ]
        );
    }

    #[test]
    fn the_order_of_the_entries_does_not_change_the_bytes() {
        let mut other = entries();
        other.reverse();
        let archives = [entries(), other].map(|entries| tar(entries, 9).unwrap());
        assert_eq!(archives[0], archives[1]);
        let compressed = archives.map(|archive| gzip(&archive).unwrap());
        assert_eq!(compressed[0], compressed[1]);
        // RFC 1952: no flags, so no name; no time; an unknown system.
        assert_eq!(compressed[0][3..8], [0; 5]);
        assert_eq!(compressed[0][9], 255);
        let mut decoder = flate2::read::GzDecoder::new(&*compressed[0]);
        let mut bytes = Vec::new();
        decoder.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, tar(entries(), 9).unwrap());
    }

    #[test]
    fn a_path_is_once_in_an_archive_and_fits() {
        let twice = vec![Entry::file("a", "1"), Entry::file("a", "2")];
        assert!(tar(twice, 0).unwrap_err().to_string().contains("twice"));
        for (path, fits) in [
            (format!("{0}/{0}/{0}", "d".repeat(70)), true),
            ("f".repeat(101), false),
            ("../f".to_owned(), false),
            ("/f".to_owned(), false),
        ] {
            assert_eq!(tar(vec![Entry::file(path.clone(), "")], 0).is_ok(), fits, "{path}");
        }
    }

    #[test]
    fn digests_are_those_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
