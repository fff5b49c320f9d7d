//! The cases in `corpus/`, each a JSON file. A case has the sentence that it shows, a world, a
//! caller, and the requests that are allowed and denied. Minimised failures of the random tests
//! become files there.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::reference_model::evaluate;
use crate::reference_model::real::Real;
use crate::reference_model::world::{Caller, Request, World};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    shows: String,
    world: World,
    caller: Caller,
    allowed: Vec<Request>,
    denied: Vec<Request>,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/reference_model/corpus")
}

#[expect(clippy::disallowed_methods, reason = "a test reads its own cases")]
fn load(name: &str) -> Case {
    let text = std::fs::read(directory().join(format!("{name}.json"))).unwrap();
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Runs one case, by the name of its file, against both evaluators.
pub(crate) fn run(name: &str) {
    let case = load(name);
    let Case { shows, world, caller, .. } = &case;
    assert!(!shows.is_empty(), "{name}");
    let real = Real::of(world, caller);
    let mut wrong = Vec::new();
    for (expected, requests) in [(true, &case.allowed), (false, &case.denied)] {
        for request in requests {
            if evaluate::allowed(world, caller, request) != expected {
                wrong.push(format!("the reference model says {}: {request:?}", !expected));
            }
            if real.allows(request) != expected {
                wrong.push(format!("the real one says {}: {request:?}", !expected));
            }
        }
    }
    assert!(wrong.is_empty(), "{name}: {shows}\n{}", wrong.join("\n"));
}

/// The names of all cases.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory())
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}
