//! Servers that do not fit together: two at one address, and clocks that differ.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postern_store::{Error, Introduction, Member, Peer, Store, clock_deviation};
use tokio::time::{sleep, timeout};

use crate::open;
use crate::server::EtcdServer;

/// The time of all clocks here, in milliseconds since 1970, to which the time since the start of the test is added.
const START: i64 = 1_800_000_000_000;

fn member(id: &str, address: &str) -> Member {
    Member { id: id.into(), address: address.to_owned(), format: 1, seal_keys: Vec::new() }
}

/// An introduction with a clock that is fast by so many milliseconds.
fn introduction(url: &str, begun: Instant, fast: i64) -> Introduction {
    let clock = move || START + fast + i64::try_from(begun.elapsed().as_millis()).unwrap();
    Introduction { external_url: url.to_owned(), clock: Arc::new(clock) }
}

/// Waits until the peers are as they should be.
async fn peers(store: &Arc<dyn Store>, are_as_wanted: impl Fn(&[Peer]) -> bool) -> Vec<Peer> {
    let wanted = async {
        loop {
            let peers = store.fleet().unwrap().peers();
            if are_as_wanted(&peers) {
                return peers;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_mins(1), wanted).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_does_not_join_at_the_address_of_another_one() {
    let server = EtcdServer::start();
    let url = server.url("/addresses");
    let [one, two, three] = [open(&url).await, open(&url).await, open(&url).await];
    let join = async |store: &Arc<dyn Store>, me| store.fleet().unwrap().join(me).await;
    join(&one, member("one", "a:8443")).await.unwrap();
    // Those wait for its end before they are refused.
    let (second, third) =
        tokio::join!(join(&two, member("two", "a:8443")), join(&three, member("three", "a:8443")));
    for refused in [second, third] {
        let Err(Error::Invalid(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("a:8443") && why.contains("--member-host"), "{why}");
    }
    // It announces itself anew, and the others may have addresses of their own.
    join(&one, Member { format: 2, ..member("one", "a:8443") }).await.unwrap();
    join(&two, member("two", "b:8443")).await.unwrap();
    let known = peers(&one, |peers| peers.len() == 1).await;
    assert_eq!((&*known[0].id, &*known[0].address), ("two", "b:8443"));
    // A server that has crashed is gone after some seconds. Until then, the next one at its address waits.
    drop(one);
    join(&three, member("three", "a:8443")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_at_one_address_at_once_are_one_server_at_most() {
    let server = EtcdServer::start();
    let url = server.url("/race");
    let [one, two] = [open(&url).await, open(&url).await];
    let (first, second) = tokio::join!(
        one.fleet().unwrap().join(member("one", "a:8443")),
        two.fleet().unwrap().join(member("two", "a:8443"))
    );
    let joined = [&first, &second].iter().filter(|joined| joined.is_ok()).count();
    assert_eq!(joined, 1, "{first:?} {second:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_know_how_far_their_clocks_are_apart() {
    let server = EtcdServer::start();
    let url = server.url("/clocks");
    let begun = Instant::now();
    let stores = [open(&url).await, open(&url).await, open(&url).await, open(&url).await];
    for (index, fast) in [0, 300, 90_000].into_iter().enumerate() {
        let fleet = stores[index].fleet().unwrap();
        fleet.introduce(introduction("https://a", begun, fast));
        fleet.join(member(&index.to_string(), &format!("{index}:1"))).await.unwrap();
    }
    // A server of the version before tells neither.
    stores[3].fleet().unwrap().join(member("old", "old:1")).await.unwrap();
    for (index, wanted) in [(0, [300, 90_000]), (2, [-90_000, -89_700])] {
        let known = peers(&stores[index], |peers| {
            peers.iter().filter(|peer| peer.clock.is_some()).count() == 2 && peers.len() == 3
        });
        let known = known.await;
        let clocks = known.iter().filter_map(|peer| peer.clock);
        for (clock, wanted) in clocks.zip(wanted) {
            let difference = (clock.milliseconds - wanted).unsigned_abs();
            assert!(difference <= clock.error_milliseconds, "{clock:?}, {wanted}");
            assert!(clock.error_milliseconds <= 4_000, "{clock:?}");
        }
        assert_eq!(known[0].external_url.as_deref(), Some("https://a"));
        let old = known.iter().find(|peer| &*peer.id == "old").unwrap();
        assert_eq!((&old.external_url, old.clock), (&None, None));
    }
    let deviation = async |index: usize| {
        let known = peers(&stores[index], |peers| {
            peers.iter().filter(|peer| peer.clock.is_some()).count() == 2
        });
        clock_deviation(&known.await).unwrap().milliseconds
    };
    assert!(deviation(0).await.abs() < 5_000);
    assert!(deviation(2).await > 80_000);
}
