//! Which known name an unknown one was probably meant to be. The work is bounded, however long a
//! name is.

/// Maximum characters of a name that is compared with the known ones; the longest of those has 48.
const MAX_COMPARED_CHARS: usize = 64;

/// Maximum number of names that are equally near.
const MAX_NEAREST: usize = 3;

/// Fewest bytes of a name that is looked for inside of a known one, such as `dry`.
const MIN_PART_BYTES: usize = 3;

/// Fewest bytes of a known name that is looked for inside of another, such as `serverDryRun`.
const MIN_KNOWN_PART_BYTES: usize = 5;

/// Most edits between a name and the one that was meant.
const MAX_EDITS: usize = 3;

/// Names that are not spelled like the parameter: flags of kubectl, in lower case.
const OTHER_NAMES: [(&str, &str); 2] =
    [("cascade", "propagationPolicy"), ("selectors", "labelSelector")];

/// The names of `known` that are nearest to `name`, at most three, in their order;
/// none if no name is near. Case, `-`, `_` and `.` make no difference. Nearer than any other is a
/// name with few edits, and then one of which the other is a part.
pub fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let folded = fold(name);
    if folded.chars().count() > MAX_COMPARED_CHARS {
        return Vec::new();
    }
    let other_name = OTHER_NAMES.iter().find(|(other, _)| *other == folded);
    let mut best = (usize::MAX, Vec::new());
    for candidate in known {
        let is_other_name = other_name.is_some_and(|(_, meant)| *meant == candidate);
        let rank = if is_other_name { Some(0) } else { rank(&folded, &fold(candidate)) };
        let Some(rank) = rank.filter(|rank| *rank <= best.0) else { continue };
        if rank < best.0 {
            best = (rank, Vec::new());
        }
        if best.1.len() < MAX_NEAREST && !best.1.contains(&candidate) {
            best.1.push(candidate);
        }
    }
    best.1
}

/// A name in lower case, without separators. At most one character more than is compared.
fn fold(name: &str) -> String {
    let chars = name.chars().filter(|char| !matches!(char, '-' | '_' | '.'));
    chars.map(|char| char.to_ascii_lowercase()).take(MAX_COMPARED_CHARS + 1).collect()
}

/// How far two folded names are apart; `None` if they have nothing to do with each other.
fn rank(name: &str, known: &str) -> Option<usize> {
    let shorter = name.len().min(known.len());
    let edits = strsim::osa_distance(name, known);
    if edits <= MAX_EDITS.min(shorter / 3) {
        return Some(edits);
    }
    let is_part = name.len() >= MIN_PART_BYTES && known.contains(name);
    let has_known = known.len() >= MIN_KNOWN_PART_BYTES && name.contains(known);
    (is_part || has_known).then_some(MAX_EDITS + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_name_is_near_to_nothing() {
        let long = "labelSelector".repeat(1000);
        assert!(nearest(&long, ["labelSelector"].into_iter()).is_empty());
        let dashes = format!("dry{}Run", "-_.".repeat(5000));
        assert_eq!(nearest(&dashes, ["dryRun"].into_iter()), ["dryRun"]);
    }

    proptest! {
        #[test]
        fn never_panics(name in ".{0,80}", known in proptest::sample::select(vec!["", "a", "dryRun", "labelSelector"])) {
            prop_assert!(nearest(&name, [known; 9].into_iter()).len() <= 1);
        }

        #[test]
        fn one_edit_of_a_long_name_is_found(at in 0..13_usize, letter in "[a-z]") {
            let mut name = "labelSelector".to_owned();
            name.replace_range(at..=at, &letter);
            prop_assert_eq!(nearest(&name, ["labelSelector", "fieldManager"].into_iter()), ["labelSelector"]);
        }
    }
}
