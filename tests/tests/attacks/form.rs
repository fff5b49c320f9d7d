//! The two forms of an attack: short in every test run, full where its times are measured.

/// How much of an attack is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A few seconds on any build. Nothing that is checked depends on the speed of the machine.
    Short,
    /// All of it, on a release build and a machine that does nothing else.
    Full,
}

impl Form {
    /// Returns the form of this run: `POSTERN_TEST_ATTACKS=full` asks for the full one.
    pub(crate) fn of_this_run() -> Self {
        match std::env::var("POSTERN_TEST_ATTACKS") {
            Ok(form) if form == "full" => Self::Full,
            _ => Self::Short,
        }
    }

    /// Returns the value for this form.
    pub(crate) fn pick<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}
