//! The encrypted state of a login, and the page that it returns to.
#![no_main]

use postern_oidc::login::{Login, StateKey, is_return_path};

libfuzzer_sys::fuzz_target!(|text: &str| {
    assert!(Login::open(&StateKey::new([1; 32]), text, 0).is_err());
    let login = Login::begin(&[[2; 32]; 3], "uid", Some(text), 0);
    // Slashes in the query do not lead to another host.
    let page = login.return_path().split('?').next().unwrap_or_default();
    assert!(is_return_path(login.return_path()) && !page.contains("//"));
});
