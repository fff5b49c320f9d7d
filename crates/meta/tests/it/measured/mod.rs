//! The measurement that twice the input costs at most 2.5 times as much. The tests of other crates include
//! this file, too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How much more twice the input may cost.
const MAX_RATIO: f64 = 2.5;

/// How often the input is doubled. A line gives 8 times the time, a square 64. The limit is between
/// them, with room for the effects of a busy machine on either.
const DOUBLINGS: u8 = 3;

/// How often a measurement is repeated before it counts as a failure.
const ATTEMPTS: usize = 20;

/// A time that is too short to measure.
const NEGLIGIBLE: Duration = Duration::from_millis(2);

/// The processor time of the thread for one run: what else the machine does is no part of
/// it.
fn measure(run: &mut dyn FnMut()) -> Duration {
    let used = || {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or_default())
    };
    let before = used();
    run();
    used().saturating_sub(before)
}

/// The shortest times measured, if up to `size` each doubling of the input costs more than
/// [`MAX_RATIO`] times as much.
pub(crate) fn grows_too_fast(
    size: usize,
    prepare: &dyn Fn(usize) -> Box<dyn FnMut()>,
) -> Option<String> {
    let small = size >> DOUBLINGS;
    let (mut once, mut often) = (prepare(small), prepare(small << DOUBLINGS));
    let (mut short, mut long) = (measure(&mut once), measure(&mut often));
    for _ in 0..ATTEMPTS {
        short = short.min(measure(&mut once));
        let limit = short.as_secs_f64() * MAX_RATIO.powi(DOUBLINGS.into());
        if long < NEGLIGIBLE || long.as_secs_f64() <= limit {
            return None;
        }
        long = long.min(measure(&mut often));
    }
    Some(format!("{short:?} for {small}, {long:?} for {size}"))
}

/// Fails when a function costs too much at `size`; `prepare` makes the function for a size.
pub(crate) fn check(name: &str, size: usize, prepare: impl Fn(usize) -> Box<dyn FnMut()>) {
    if let Some(why) = grows_too_fast(size, &prepare) {
        panic!("{name}: {why}");
    }
}

/// Checks a function of a borrowed input.
pub(crate) fn check_input<T: 'static>(
    name: &str,
    size: usize,
    input: impl Fn(usize) -> T,
    run: impl Fn(&T) + Copy + 'static,
) {
    check(name, size, |n| {
        let input = input(n);
        Box::new(move || run(&input))
    });
}
