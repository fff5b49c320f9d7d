//! A second evaluator of permissions, written from the words of the documentation and sharing nothing
//! with the real one. Both must agree on random cases.
//!
//! The evaluator is in [`evaluate`], with [`rbac`], [`own`], [`owner`] and [`scope`]: one function for each sentence,
//! slow loops over plain data ([`world`]). [`generate`] and [`near`] make cases, [`real`] asks `postern_auth`,
//! [`shrink`] makes a failing case small, and [`corpus`] runs the cases in `corpus/`, those of
//! [`known_bugs`] by name.
//!
//! `POSTERN_NAIVE_CASES` is the number of random decisions (300,000 unless set), `POSTERN_NAIVE_SEED` the
//! seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod change;
mod containment;
mod corpus;
mod evaluate;
mod generate;
mod known_bugs;
mod near;
mod own;
mod owner;
mod rbac;
mod real;
mod reasons;
mod refused;
pub(crate) mod rng;
mod sample;
mod scope;
mod sets;
mod shrink;
mod target;
mod world;

// Other tests of this crate need it.
use real::Real;
use rng::Rng;
use serde::{Deserialize, Serialize};
use world::{Caller, Request, World};

/// Requests for each random world.
const REQUESTS_OF_A_SCENE: usize = 40;

/// One question.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Question {
    world: World,
    caller: Caller,
    request: Request,
}

fn from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// How many scenes a test looks at, when it is a `part` of a hundred of the work.
fn scenes(part: usize) -> usize {
    from_environment("POSTERN_NAIVE_CASES", 300_000) / REQUESTS_OF_A_SCENE * part / 100
}

fn rng(of: u64) -> Rng {
    Rng::new(u64::try_from(from_environment("POSTERN_NAIVE_SEED", 1)).unwrap() * 1000 + of)
}

#[test]
fn the_naive_evaluator_and_the_real_one_agree() {
    let mut rng = rng(0);
    let (mut allowed, mut all) = (0_usize, 0_usize);
    for _ in 0..scenes(100) {
        let scene = generate::scene(&mut rng);
        let real = Real::of(&scene.world, &scene.caller);
        for _ in 0..REQUESTS_OF_A_SCENE {
            let request = near::request(&mut rng, &scene);
            let expected = evaluate::allowed(&scene.world, &scene.caller, &request);
            all += 1;
            allowed += usize::from(expected);
            if real.allows(&request) != expected {
                let (world, caller) = (scene.world.clone(), scene.caller.clone());
                differ(&Question { world, caller, request });
            }
        }
    }
    eprintln!("{allowed} of {all} allowed");
    assert!(allowed * 10 >= all * 3, "only {allowed} of {all} cases are allowed ones");
    assert!(allowed * 10 <= all * 7, "{allowed} of {all} cases are allowed ones");
}

/// Fails with the smallest question on which both differ, as a case for the corpus.
fn differ(question: &Question) -> ! {
    let differs = |question: &Question| {
        let Question { world, caller, request } = question;
        evaluate::allowed(world, caller, request) != Real::of(world, caller).allows(request)
    };
    let smallest = shrink::smallest(question, differs);
    let expected = evaluate::allowed(&smallest.world, &smallest.caller, &smallest.request);
    panic!(
        "the reference model says {expected}:\n{}",
        serde_json::to_string_pretty(&smallest).unwrap()
    );
}

#[test]
fn every_case_of_the_corpus_holds() {
    let names = corpus::names();
    assert!(names.len() >= 40, "{}", names.len());
    for name in &names {
        corpus::run(name);
    }
}
