//! Servers while etcd is full: it takes no writes, and grants no leases.

use postern_tests::etcd::Etcd;
use postern_tests::objects::{secret, secret_path, secrets, value_of};
use postern_tests::{Server, Setup, wait};

use super::{copy_keyring, copy_of, init, on, storage, until_ready};

/// The number of servers that share the store, as one of them counts them.
async fn count(server: &Server) -> u32 {
    let metrics = server.client().get("/metrics").send().await.expect_text(200);
    let value = metrics.lines().find_map(|line| line.strip_prefix("postern_store_servers "));
    value.unwrap().parse().unwrap()
}

async fn until_counted(server: &Server, expected: u32) {
    wait::until("the server to count the others", async || {
        (count(server).await == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_starts_while_etcd_is_full_serves_reads_and_joins_later() {
    let etcd = Etcd::start().await;
    let store = etcd.store("/fleet");
    let home = init(&store).await;
    let (second, third) = (copy_of(&home), copy_of(&home));
    let one = on(Setup::on(&home), &store).start().await;
    one.client().post(&secrets("platform")).json(&secret("kept", "x")).send().await.expect(201);

    etcd.set_full(true).await;
    let two = on(Setup::on(&second), &store).start().await;
    let client = two.client();
    until_ready(&two).await;
    let read = client.get(&secret_path("kept")).send().await.expect(200);
    assert_eq!(value_of(&read), "x");
    client.post(&secrets("platform")).json(&secret("late", "y")).send().await.expect(503);
    until_ready(&two).await;
    assert_eq!(count(&two).await, 1, "it is not counted");

    etcd.set_full(false).await;
    until_counted(&one, 2).await;
    client.post(&secrets("platform")).json(&secret("late", "y")).send().await.expect(201);

    // A key that the others have could become active without a server that is not counted.
    let key = storage(&home, &["rotate-key"]).await.unwrap();
    one.stop().await;
    // A start announces all keys.
    let one = on(Setup::on(&home), &store).start().await;
    let waits = async || storage(&second, &["rewrap"]).await.unwrap();
    etcd.set_full(true).await;
    let refused = on(Setup::on(&third), &store).run_to_end().await;
    assert!(!refused.status.success());
    let lacks = format!("has the at-rest key {key}, and this one lacks it");
    assert!(refused.stderr.contains(&lacks), "{}", refused.stderr);
    // With the key, it starts, and the key becomes active when all three have it.
    copy_keyring(&home, &third);
    let three = on(Setup::on(&third), &store).start().await;
    etcd.set_full(false).await;
    until_counted(&one, 3).await;
    copy_keyring(&home, &second);
    wait::until("the key to become active", async || (waits().await != "0").then_some(())).await;
    for server in [one, two, three] {
        let read = server.client().get(&secret_path("late")).send().await.expect(200);
        assert_eq!(value_of(&read), "y");
        server.stop().await;
    }
}
