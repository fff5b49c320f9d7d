//! The names most similar to a mistyped one.

/// The longest name that is compared: the work grows with its square.
const COMPARED_MAX_CHARS: usize = 64;
/// How many names are suggested at most.
const SUGGESTIONS_MAX: usize = 3;

/// The candidates that the user may have meant, the most similar first.
pub(crate) fn nearest<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let far = wanted.chars().count().div_ceil(3).min(3);
    let mut near: Vec<_> = candidates
        .into_iter()
        .filter(|candidate| *candidate != wanted && candidate.len() <= COMPARED_MAX_CHARS)
        .filter(|_| wanted.len() <= COMPARED_MAX_CHARS)
        .map(|candidate| (strsim::osa_distance(wanted, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= far || is_start(wanted, candidate))
        .collect();
    near.sort_unstable();
    near.into_iter().take(SUGGESTIONS_MAX).map(|(_, candidate)| candidate).collect()
}

/// Whether one of the words is the start of the other.
fn is_start(wanted: &str, candidate: &str) -> bool {
    wanted.len() >= 3 && candidate.starts_with(wanted)
        || candidate.len() >= 3 && wanted.starts_with(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_for_mistyped_names() {
        let names = ["password", "username", "url", "db", "database"];
        assert_eq!(nearest("pasword", names), ["password"]);
        assert_eq!(nearest("passwrod", names), ["password"]);
        assert_eq!(nearest("data", names), ["database"]);
        assert_eq!(nearest("zzzz", names), [""; 0]);
        assert_eq!(nearest("", names), [""; 0]);
        assert_eq!(nearest(&"x".repeat(10_000), names), [""; 0]);
    }
}
