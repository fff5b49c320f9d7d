//! Generated names: the number of attempts if a name exists already.

use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::{AnyKind as _, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::{ApiError, Reason};

use super::{Fixture, fixture, permit};
use crate::admit::Writing;
use crate::operations;
use crate::registry::EncodedObject;

/// Creates a secret with a generated name, from the same random bytes each time.
async fn generate(fixture: &Fixture) -> Result<EncodedObject, ApiError> {
    *fixture.clock.next_number.lock() = 7;
    let info = SharedSecret.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta { generate_name: "s-".to_owned(), ..ObjectMeta::default() },
        fields: serde_json::Map::new(),
    };
    let permit = permit(Verb::Create, "");
    operations::create(&fixture.registry, &permit, object, &Writing::by_server()).await
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
