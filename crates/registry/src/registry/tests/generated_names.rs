//! Generated names: the number of attempts if a name exists already.

use postern_meta::object::Object;
use postern_meta::status::{ApiError, Reason};
use serde_json::json;

use super::{Fixture, fixture, secret};

/// Creates a secret with a generated name, from the same random bytes each time.
async fn generate(fixture: &Fixture) -> Result<Object, ApiError> {
    *fixture.clock.next_number.lock() = 7;
    fixture.try_make(secret(""), json!({ "metadata": { "generateName": "s-" } })).await
}

/// The first create gets the first name, the second create the next attempted name, and so on.
#[tokio::test]
async fn after_eight_names_that_are_taken_the_client_has_to_try_again() {
    let fixture = fixture().await;
    for attempts in 1..=8 {
        let made = generate(&fixture).await;
        assert!(made.is_ok(), "a name that is free at attempt {attempts}: {:?}", made.err());
    }
    let Err(error) = generate(&fixture).await else { panic!("all eight are taken") };
    assert_eq!((error.code(), error.reason()), (409, Reason::AlreadyExists));
    let status = error.status();
    assert_eq!(error.retry_after_seconds(), Some(1));
    assert!(status.message.contains("not able to generate a unique name"), "{}", status.message);
}
