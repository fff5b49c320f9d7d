//! The permanent namespaces. The first transaction of a database creates them. If one is missing or corrupt at a
//! start, it is created again. Clients may not delete these namespaces, so no client could repair one.

use postern_kinds::namespace::Namespace;
use postern_kinds::{AnyKind as _, Verb, permanent_namespaces};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::GetOptions;
use postern_meta::status::ApiError;
use serde_json::Map;

use crate::admit::Writing;
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;

/// Creates the permanent namespaces that are missing or corrupt. Failures are logged.
pub async fn restore(registry: &Registry) {
    for name in permanent_namespaces() {
        if let Err(error) = ensure(registry, name).await {
            let inner = error.inner();
            tracing::error!(name, inner, "a permanent namespace could not be restored: {error}");
        }
    }
}

async fn ensure(registry: &Registry, name: &str) -> Result<(), ApiError> {
    if operations::remove_corrupt(registry, &Namespace, name).await? {
        tracing::warn!(
            name,
            "a corrupt namespace was created again without its labels and annotations"
        );
    }
    let reading = Permit::for_server(&Namespace, Verb::Get, None, name);
    match registry.get(&reading, &GetOptions::default()).await {
        Err(error) if error.code() == 404 => {}
        found => return found.map(drop),
    }
    let info = Namespace.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
        fields: Map::new(),
    };
    let permit = Permit::for_server(&Namespace, Verb::Create, None, name);
    match operations::create(registry, &permit, object, &Writing::by_server()).await {
        // Another server was faster.
        Err(error) if error.code() != 409 => Err(error),
        _ => Ok(()),
    }
}
