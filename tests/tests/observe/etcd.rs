//! The metrics of a store that several servers share, on a real etcd: it answers, it stops, and it is there again.

use postern_tests::etcd::Etcd;
use postern_tests::{Home, Setup};

use crate::observe::scrape::{Metrics, until};

/// The member of etcd that answers, and none else.
const MEMBER: &[&str] = &["member=\"127.0.0.1:"];

fn on(setup: Setup, store: &str) -> Setup {
    setup.argument("--store").argument(store).argument("--allow-old-etcd")
}

#[tokio::test]
async fn an_etcd_that_stops_is_seen() {
    let (mut etcd, home) = (Etcd::start().await, Home::new());
    let store = etcd.store("/observed");
    let init = Setup::bare(&home).argument("init").argument("--data-dir").argument(home.data());
    let ended = on(init, &store).run_to_end().await;
    assert!(ended.status.success(), "{}", ended.stderr);
    let server = on(Setup::on(&home), &store).start().await;
    let admin = server.client();
    let up = "postern_store_member_up";
    let healthy = until("the first look at etcd", &admin, |metrics| {
        metrics.sum(up, MEMBER) == Some(1.0)
            && metrics.sum("postern_store_servers", &[]) == Some(1.0)
    })
    .await;
    assert_eq!(healthy.sum("postern_store_alarm", &[]), Some(0.0));
    assert_eq!(healthy.count("postern_store_watch_gaps_total"), 0);
    assert_eq!(healthy.count("postern_store_epoch"), 0);
    let size = healthy.sum("postern_store_member_size_bytes", MEMBER).unwrap();
    assert_eq!(healthy.sum("apiserver_storage_size_bytes", &[]), Some(size));
    assert!(healthy.sum("postern_store_member_used_bytes", MEMBER).unwrap() <= size);
    // The version of this etcd does not tell its quota.
    assert_eq!(healthy.sum("postern_store_member_quota_bytes", MEMBER), None);

    etcd.kill();
    let age = "postern_store_answer_age_seconds";
    let cut_off = until("etcd to be missed", &admin, |metrics| {
        metrics.sum(up, MEMBER) == Some(0.0) && metrics.value(age) > 2.0
    })
    .await;
    assert!(cut_off.count("postern_store_watch_restarts_total") > 0);
    etcd.start_again().await;
    until("etcd to be seen again", &admin, |metrics| {
        metrics.sum(up, MEMBER) == Some(1.0) && metrics.value(age) < 2.0
    })
    .await;
    let again = Metrics::of(&admin).await;
    assert_eq!(again.count("postern_store_watch_gaps_total"), 0);
    server.stop().await;
}
