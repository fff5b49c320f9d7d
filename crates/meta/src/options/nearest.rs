//! Which known name an unknown one was probably meant to be. The work is bounded, however long a
//! name is.

/// Maximum bytes of a name that is compared with the known ones; the longest of those has 48.
const MAX_COMPARED_BYTES: usize = 64;

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

/// Returns the names of `known` that are nearest to `name`, at most three, in their order;
/// none if no name is near. Case, `-`, `_` and `.` make no difference. Nearer than any other is a
/// name with few edits, and then one of which the other is a part.
pub fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let folded = fold(name);
    if folded.len() > MAX_COMPARED_BYTES {
        return Vec::new();
    }
    let other_name = OTHER_NAMES.iter().find(|(other, _)| other.as_bytes() == folded);
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

/// Returns a name without what makes no difference. At most one byte more than is compared.
fn fold(name: &str) -> Vec<u8> {
    let bytes = name.bytes().filter(|byte| !matches!(byte, b'-' | b'_' | b'.'));
    bytes.map(|byte| byte.to_ascii_lowercase()).take(MAX_COMPARED_BYTES + 1).collect()
}

/// Returns how far two folded names are apart; `None` if they have nothing to do with each other.
fn rank(name: &[u8], known: &[u8]) -> Option<usize> {
    let shorter = name.len().min(known.len());
    let edits = edits(name, known);
    if edits <= MAX_EDITS.min(shorter / 3) {
        return Some(edits);
    }
    let is_part = name.len() >= MIN_PART_BYTES && contains(known, name);
    let has_known = known.len() >= MIN_KNOWN_PART_BYTES && contains(name, known);
    (is_part || has_known).then_some(MAX_EDITS + 1)
}

fn contains(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

/// Returns the number of bytes to insert, remove, replace or exchange with their neighbour.
fn edits(left: &[u8], right: &[u8]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut left_before = None;
    for (row, &at_left) in left.iter().enumerate() {
        let mut current = Vec::with_capacity(last.len());
        let mut cell = row + 1;
        current.push(cell);
        let mut right_before = None;
        for (column, &at_right) in right.iter().enumerate() {
            let diagonal = last.get(column).copied().unwrap_or(cell);
            let above = last.get(column + 1).copied().unwrap_or(cell);
            cell = (diagonal + usize::from(at_left != at_right)).min(above + 1).min(cell + 1);
            if left_before == Some(at_right) && right_before == Some(at_left) {
                let exchanged = column.checked_sub(1).and_then(|at| before_last.get(at));
                cell = exchanged.map_or(cell, |exchanged| cell.min(exchanged + 1));
            }
            right_before = Some(at_right);
            current.push(cell);
        }
        left_before = Some(at_left);
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edits_are_counted() {
        for (left, right, want) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "abd", 1),
            ("abc", "ab", 1),
            ("abc", "acb", 1),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
            ("dyrrun", "dryrun", 1),
        ] {
            assert_eq!(edits(left.as_bytes(), right.as_bytes()), want, "{left} {right}");
            assert_eq!(edits(right.as_bytes(), left.as_bytes()), want, "{right} {left}");
        }
    }

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
