//! At-rest keys that a real `OpenBao` has wrapped.

use postern_tests::openbao::OpenBao;
use postern_tests::{Home, Setup};

use crate::keyring_scenario::{Flags, is_stored, refusal, storage, store, whole_life, with};

#[tokio::test]
async fn openbao_wraps_the_keys_of_a_server() {
    let bao = OpenBao::start().await;
    let home = Home::new();
    let token = home.path().join("token");
    std::fs::write(&token, bao.token()).unwrap();
    let flags: Flags =
        ["--keyring", &bao.keyring(), "--transit-token-file", token.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec();
    whole_life(&flags).await;

    // Its key is rotated, and the server gets a new token. An older at-rest key stays readable.
    let server = with(Setup::on(&home), &flags).start().await;
    store(&server, "before").await;
    bao.rotate_key();
    std::fs::write(&token, bao.token()).unwrap();
    storage(&home, &["rotate-key"], &flags).await;
    store(&server, "after").await;
    server.stop().await;
    let server = with(Setup::on(&home), &flags).start().await;
    is_stored(&server, "before").await;
    is_stored(&server, "after").await;
    std::fs::write(&token, "none").unwrap();
    let denied = refusal(&home, &["rotate-key"], &flags).await;
    assert!(denied.contains("status 403") && denied.contains("permission denied"), "{denied}");
    server.stop().await;
}
