//! The places for logins and exchanges that are served at once. A provider that does not answer cannot take all of them.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The places, and who has them.
#[derive(Default)]
pub(super) struct Places {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// By the name of the provider. One without a place has no entry.
    of: HashMap<String, usize>,
}

/// A place, until it is dropped.
pub(super) struct Place<'a> {
    places: &'a Places,
    of: String,
}

impl Places {
    /// Takes a place, if one of `max` is free, and if this provider has less than `max_of_one`.
    pub(super) fn take(&self, of: &str, max: usize, max_of_one: usize) -> Option<Place<'_>> {
        let mut taken = self.taken.lock();
        let own = taken.of.get(of).copied().unwrap_or_default();
        if taken.all >= max || own >= max_of_one {
            return None;
        }
        taken.all += 1;
        taken.of.insert(of.to_owned(), own + 1);
        Some(Place { places: self, of: of.to_owned() })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all -= 1;
        if let Some(own) = taken.of.get_mut(&self.of) {
            *own -= 1;
            if *own == 0 {
                taken.of.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_provider_leaves_places_to_the_others() {
        let places = Places::default();
        let take = |of: &str| places.take(of, 8, 2);
        let hanging: Vec<Place<'_>> = (0..9).filter_map(|_| take("hanging")).collect();
        assert_eq!(hanging.len(), 2);
        let other = take("other");
        assert!(other.is_some());
        drop(hanging);
        let many: Vec<_> = (0..9).filter_map(|number| take(&number.to_string())).collect();
        assert_eq!(many.len(), 7, "the other one has its place");
        drop((many, other));
        let taken = places.taken.lock();
        assert_eq!((taken.all, taken.of.len()), (0, 0), "nothing is kept");
    }
}
