//! The two forms of a long test: short in every test run, full where there is time for it.

/// How much of a test is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A few seconds on any build. Nothing that is checked depends on the speed of the machine.
    Short,
    /// All of it.
    Full,
}

impl Form {
    /// The form of this run: `POSTERN_TEST_FORM=full` asks for the full one, as `cargo xtask test --all` does.
    #[must_use]
    pub fn of_this_run() -> Self {
        Self::from_variable("POSTERN_TEST_FORM")
    }

    /// The form of attacks, and of other tests that compare times with limits: `POSTERN_TEST_FIGURES=full` asks for the full
    /// one. It needs a release build and a machine that does nothing else, so `cargo xtask test --all` does not ask for it.
    #[must_use]
    pub fn of_figures() -> Self {
        Self::from_variable("POSTERN_TEST_FIGURES")
    }

    fn from_variable(name: &str) -> Self {
        if std::env::var(name).is_ok_and(|form| form == "full") { Self::Full } else { Self::Short }
    }

    /// The value for this form.
    #[must_use]
    pub fn pick<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}
