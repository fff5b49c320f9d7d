//! One attack, and the figures that it is held to.

use std::io::Write as _;
use std::time::Duration;

use crate::attacks::scene::{Scene, pass};
use crate::attacks::victims::{Interval, Seen, Victims};
use postern_tests::Form;

/// The longest that `/livez` and the administrator's GET may take during an attack.
const OPERATOR_MAX: Duration = Duration::from_secs(1);

/// The most memory of a server under attack, in MB.
const MEMORY_MAX_MB: u64 = 400;

/// How much slower others may get: their p99, to their usual one.
pub(crate) const SLOWDOWN: f64 = 3.0;

/// A usual p99 below this counts as this. The attacker and the other clients share the processors with the
/// server here. A turn of the kernel's scheduler takes some milliseconds: less than that is not the server's.
const USUAL_FLOOR: Duration = Duration::from_millis(10);

/// How long the usual times are measured.
const USUAL: Duration = Duration::from_secs(5);

/// Where the figures of the full form go: one line for each attack, its columns apart by tabs.
const FIGURES_FILE: &str = "POSTERN_TEST_FIGURES_FILE";

/// The measurements of one attack, and their limits.
struct Figures {
    form: Form,
    slowdown: f64,
    usual: Interval,
    during: Interval,
    peak_memory_mb: u64,
}

/// Runs an attack while the other clients send their usual requests. Fails if one of these requests
/// is not served, or a figure is missed.
pub(crate) async fn hold<T>(
    name: &str,
    scene: &Scene,
    victims: &Victims,
    slowdown: f64,
    attack: impl Future<Output = T>,
) -> T {
    let usual = match scene.form {
        Form::Short => Interval::default(),
        Form::Full => victims.during(Form::Short, pass(USUAL)).await.0,
    };
    let (during, result) = victims.during(scene.form, attack).await;
    let peak_memory_mb = scene.peak_memory_mb();
    let figures = Figures { form: scene.form, slowdown, usual, during, peak_memory_mb };
    figures.print(name);
    let missed = figures.missed();
    assert!(missed.is_empty(), "{name}:\n{}", missed.join("\n"));
    result
}

impl Figures {
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let failures = self.during.failures();
        if let Some(first) = failures.first() {
            missed
                .push(format!("{} requests of others failed; the first: {first}", failures.len()));
        }
        if self.peak_memory_mb > MEMORY_MAX_MB {
            missed.push(format!("{} MB of memory, of {MEMORY_MAX_MB}", self.peak_memory_mb));
        }
        if self.form == Form::Full {
            missed.extend(self.late());
        }
        missed
    }

    fn late(&self) -> Vec<String> {
        let Self { usual, during, .. } = self;
        let operators = [("/livez", &during.livez), ("the administrator's GET", &during.admin)];
        let mut late: Vec<_> = operators
            .into_iter()
            .filter(|(_, seen)| seen.max() > OPERATOR_MAX)
            .map(|(who, seen)| format!("{who} took {:?}, of {OPERATOR_MAX:?}", seen.max()))
            .collect();
        for (who, usual, during) in
            [("reads", &usual.reads, &during.reads), ("writes", &usual.writes, &during.writes)]
        {
            let most = usual.p99().max(USUAL_FLOOR).mul_f64(self.slowdown);
            if during.p99() > most {
                late.push(format!("others' {who} have a p99 of {:?}, of {most:?}", during.p99()));
            }
        }
        late
    }

    fn print(&self, name: &str) {
        let Self { usual, during, .. } = self;
        let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let both = |usual: &Seen, during: &Seen| {
            format!("{} ({})", milliseconds(during.p99()), milliseconds(usual.p99()))
        };
        let columns = [
            name.to_owned(),
            milliseconds(during.livez.max()),
            milliseconds(during.admin.max()),
            both(&usual.reads, &during.reads),
            both(&usual.writes, &during.writes),
            during.failures().len().to_string(),
            format!("{} MB", self.peak_memory_mb),
            if self.missed().is_empty() { "yes" } else { "NO" }.to_owned(),
        ];
        eprintln!("{}", columns.join("; "));
        let line = columns.join("\t") + "\n";
        let Some(path) = std::env::var_os(FIGURES_FILE) else { return };
        let file = std::fs::File::options().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("the figures can be written");
    }
}
