//! One operation on several objects: an error about one of them does not stop the others.

use postern_client::Error;

use crate::error::CliError;
use crate::process::Process;

/// Why the operation failed for one object.
pub(crate) enum Failure {
    /// The operation can still succeed for the others.
    One(CliError),
    /// The operation would fail for all others, too.
    All(CliError),
}

impl Failure {
    /// The failure of a request, with its explanation.
    pub(crate) fn of(error: &Error, explained: CliError) -> Self {
        if error.fails_all_requests() { Self::All(explained) } else { Self::One(explained) }
    }

    /// The same failure, with the place of the object in the message.
    pub(crate) fn at(self, location: &str) -> Self {
        match self {
            Self::One(error) => Self::One(error.at(location)),
            Self::All(error) => Self::All(error.at(location)),
        }
    }
}

/// Does the work for one item after the other. After a failure that is about all of them, the error has the labels of the
/// items that are left.
pub(crate) async fn each<T>(
    items: &[T],
    label: impl Fn(&T) -> Option<String>,
    process: &Process,
    mut work: impl AsyncFnMut(&T) -> Result<(), Failure>,
) -> Result<(), CliError> {
    let mut has_failed = false;
    for (done, item) in items.iter().enumerate() {
        match work(item).await {
            Ok(()) => {}
            Err(Failure::One(error)) => {
                process.print_error(&error);
                has_failed = true;
            }
            Err(Failure::All(error)) => {
                let left: Vec<String> = items[done + 1..].iter().filter_map(label).collect();
                return Err(error.not_tried(&left));
            }
        }
    }
    if has_failed { Err(CliError::reported()) } else { Ok(()) }
}
