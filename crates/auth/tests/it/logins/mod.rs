//! An access key allows something only while everything that it depends on allows it. These are its makers, its login, its
//! session, its WorkloadIdentity, the identity and the connector of the login, and the groups that a provider has confirmed.
//! Random sequences show this on two servers, one of which sometimes knows the changes later.
//!
//! The objects are real, and the kinds and `postern_auth` decide, as in the server. A table of
//! plain data ([`Table`]) has the expected decisions. It is written from the pages of
//! `docs/reference` about access keys, sessions, single sign-on and workload identity, and it never
//! asks the index. Both must have the same result.
//!
//! `POSTERN_CHAIN_SEQUENCES` is the number of sequences (1,500 unless set), `POSTERN_NAIVE_SEED` the seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod steps;
mod table;
mod world;

use crate::reference_model::rng::Rng;
use steps::{Counts, ask_for_sync, check, step};
use world::World;

const STEPS: usize = 14;

#[test]
fn a_key_allows_what_its_login_its_session_and_its_workload_allow_at_that_moment() {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let sequences = variable("POSTERN_CHAIN_SEQUENCES").unwrap_or(1_500);
    let seed = variable("POSTERN_NAIVE_SEED").unwrap_or(1);
    let mut counts = Counts::default();
    let first = World::first();
    for number in 0..sequences {
        // Each sequence has its own seed, so that it can be run alone.
        let mut rng = Rng::new(seed.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World::new(&mut rng, &first);
        world.tell(|| format!("sequence {number}"));
        for _ in 0..STEPS {
            // A step that is not possible is another one.
            for _ in 0..3 {
                if step(&mut rng, &mut world).is_some() {
                    break;
                }
            }
            world.tick();
            if rng.percent(10) {
                ask_for_sync(&mut rng, &mut world);
            }
            check(&mut rng, &world, &mut counts);
        }
    }
    let Counts { asked, allowed, .. } = counts;
    eprintln!(
        "{sequences} sequences: {allowed} of {asked} allowed, {} of them by groups, {} by keys with makers, {} by keys of workloads, \
         {} by keys of logins, {} on servers that are behind; {} more by syncs",
        counts.by_group,
        counts.of_makers,
        counts.of_workloads,
        counts.of_logins,
        counts.behind,
        counts.of_syncs
    );
    assert!(allowed * 10 >= asked * 3, "only {allowed} of {asked} are allowed");
    for (what, part) in [
        ("groups", counts.by_group),
        ("makers", counts.of_makers),
        ("workloads", counts.of_workloads),
        ("logins", counts.of_logins),
    ] {
        assert!(part * 100 >= allowed, "only {part} of {allowed} by {what}");
    }
}
