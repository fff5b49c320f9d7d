//! The data directories that scenarios begin with. Each is filled once by a server that does not run under callgrind,
//! and copied for each count.

use std::cell::OnceCell;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::bench::Bench;
use crate::bench::groups::access::{Size, make_callers};
use crate::bench::server::directory;
use crate::shell;

/// The content of a data directory before a count begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fixture {
    /// The files that the first start makes.
    Empty,
    /// 1,000 shared secrets, and callers with a few bindings.
    Small,
    /// 1,000 shared secrets, and a caller with 10,000 bindings.
    ManyBindings,
    /// 10,000 shared secrets.
    ManyObjects,
}

/// The filled directories of a run.
#[derive(Default)]
pub(super) struct Fixtures {
    empty: OnceCell<TempDir>,
    small: OnceCell<TempDir>,
    many_bindings: OnceCell<TempDir>,
    many_objects: OnceCell<TempDir>,
}

impl Fixtures {
    /// A new copy of a filled directory.
    pub(super) fn copy(&self, bench: &Bench, fixture: Fixture) -> Result<TempDir> {
        let cell = match fixture {
            Fixture::Empty => &self.empty,
            Fixture::Small => &self.small,
            Fixture::ManyBindings => &self.many_bindings,
            Fixture::ManyObjects => &self.many_objects,
        };
        if cell.get().is_none() {
            // The cell was empty one line before.
            cell.set(fill(bench, fixture)?).ok();
        }
        let filled = cell.get().context("the fixture was not made")?;
        let copy = directory()?;
        shell::output_of(
            Command::new("cp").arg("-a").arg(filled.path().join(".")).arg(copy.path()),
        )?;
        Ok(copy)
    }
}

fn fill(bench: &Bench, fixture: Fixture) -> Result<TempDir> {
    let mut server = bench.start_postern()?;
    let callers = |bindings| Size { objects: 1000, visible: 1000, bindings };
    match fixture {
        Fixture::Empty => {}
        Fixture::Small => {
            bench.fill_postern(&mut server, 1000)?;
            make_callers(bench, &server, &callers(10))?;
        }
        Fixture::ManyBindings => {
            bench.fill_postern(&mut server, 1000)?;
            make_callers(bench, &server, &callers(10_000))?;
        }
        Fixture::ManyObjects => bench.fill_postern(&mut server, 10_000)?,
    }
    server.stop()
}
