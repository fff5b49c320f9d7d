//! Histories of a fleet: clients write, read and watch on three servers while servers, members of
//! etcd and the links between them fail. A checker then compares the results of the clients with
//! the promises of a fleet.
//!
//! The same seed chooses the same faults in the same order. The requests of the clients in between
//! depend on the machine.

mod checker;
mod clients;
mod gaps;
mod ground;
mod history;
mod lies;
mod nemesis;
mod simulation;
mod watchers;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use postern_tests::{Form, Random, wait};
use tokio::time::sleep;

use self::gaps::Gaps;
use self::ground::{Fleet, Options, SERVERS};
use self::history::{Action, History, Outcome, Recorder};
use self::nemesis::{Nemesis, Scene};
use self::workload::Ground;

/// The time in which clients see a healthy fleet, between faults.
const CALM: Duration = Duration::from_millis(700);

/// The longest time of a fault.
const SHORT_FAULT: Duration = Duration::from_millis(1_500);
const LONG_FAULT: Duration = Duration::from_secs(5);

/// The most bytes that etcd stores in rounds that fill it.
const QUOTA_BYTES: u64 = 24 * 1024 * 1024;

/// The default duration of the full form.
const FULL_SECONDS: u64 = 300;

/// The faults that leave all data where they are.
const FAULTS: &[Nemesis] = &[
    Nemesis::KillServer,
    Nemesis::PauseServer,
    Nemesis::KillMember,
    Nemesis::KillLeader,
    Nemesis::SplitServer,
    Nemesis::SplitMember,
    Nemesis::Together,
    Nemesis::Compact,
];

/// One fleet and its faults.
struct Plan {
    options: Options,
    faults: Vec<Nemesis>,
    longest: Duration,
}

impl Plan {
    /// The plan of a round: each third one is about the storage of etcd.
    fn of(round: u64, random: &mut Random) -> Self {
        let mut faults = FAULTS.to_vec();
        faults.extend_from_slice(FAULTS);
        if ground::clock_library().is_some() {
            faults.extend([Nemesis::StepClock; 2]);
        }
        shuffle(&mut faults, random);
        let (mut quota_bytes, mut history) = (None, "5m");
        match round % 3 {
            0 => {
                faults.push(Nemesis::RotateKey);
                shuffle(&mut faults, random);
            }
            1 => {
                faults.truncate(4);
                faults.extend([Nemesis::Restore, Nemesis::RestoreWithBump, Nemesis::Restore]);
                shuffle(&mut faults, random);
            }
            _ => {
                (quota_bytes, history) = (Some(QUOTA_BYTES), "3s");
                faults.truncate(8);
                faults.push(Nemesis::Fill);
                shuffle(&mut faults, random);
                faults.push(Nemesis::Fill);
            }
        }
        Self { options: Options { history, quota_bytes }, faults, longest: LONG_FAULT }
    }

    /// The plan of the faults that `POSTERN_TEST_HISTORY_FAULTS` names, in this order.
    fn asked() -> Option<Self> {
        let asked = std::env::var("POSTERN_TEST_HISTORY_FAULTS").ok()?;
        let named = |name: &str| {
            let known = Nemesis::ALL.iter().find(|fault| format!("{fault:?}") == *name);
            *known.unwrap_or_else(|| panic!("{name} is none of {:?}", Nemesis::ALL))
        };
        let faults: Vec<Nemesis> = asked.split(',').map(named).collect();
        let quota_bytes = faults.contains(&Nemesis::Fill).then_some(QUOTA_BYTES);
        Some(Self { options: Options { history: "5m", quota_bytes }, faults, longest: LONG_FAULT })
    }

    /// A plan that is done in half a minute.
    fn short(random: &mut Random) -> Self {
        let mut faults = FAULTS.to_vec();
        shuffle(&mut faults, random);
        faults.push(Nemesis::Restore);
        let options = Options { history: "5m", quota_bytes: None };
        Self { options, faults, longest: SHORT_FAULT }
    }
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap();
        items.swap(last, other);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_a_fleet_keeps_its_promises_while_its_parts_fail() {
    let seed = std::env::var("POSTERN_TEST_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|| {
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
    });
    eprintln!("the seed is {seed}; POSTERN_TEST_SEED={seed} chooses the same faults again");
    let mut random = Random::new(seed);
    if let Some(plan) = Plan::asked() {
        return round(plan, seed, &mut random).await;
    }
    let Some(seconds) = seconds() else {
        let plan = Plan::short(&mut random);
        return round(plan, seed, &mut random).await;
    };
    let started = Instant::now();
    let mut number = 0;
    while started.elapsed() < Duration::from_secs(seconds) {
        let plan = Plan::of(number, &mut random);
        // Each round has its own random numbers, so that the time of one does not change the next.
        let mut of_round = Random::new(random.draw());
        round(plan, seed, &mut of_round).await;
        number += 1;
    }
    eprintln!("{number} rounds in {:?}", started.elapsed());
}

/// The duration that is asked for; `None` for the short form.
fn seconds() -> Option<u64> {
    let asked = std::env::var("POSTERN_TEST_HISTORY_SECONDS").ok();
    let asked = asked.map(|seconds| seconds.parse().expect("a number of seconds"));
    asked.or_else(|| Form::of_this_run().pick(None, Some(FULL_SECONDS)))
}

/// Runs a fleet, its clients and its faults, and checks the results of the clients.
async fn round(plan: Plan, seed: u64, random: &mut Random) {
    eprintln!("{:?} {:?}", plan.options, plan.faults);
    let recorder = Recorder::default();
    let mut fleet = Fleet::start(plan.options).await;
    fleet.prepare(&recorder).await;
    let ground = Ground {
        addresses: Arc::clone(&fleet.addresses),
        recorder: recorder.clone(),
        is_over: Arc::default(),
        writing: Arc::default(),
        user: Arc::default(),
    };
    let mut asker = ground.asker("driver");
    let Some(Outcome::Listed { version, .. }) = asker.ask(0, Action::List).await else {
        panic!("a fleet without faults lists")
    };
    let mut workload = workload::start(&ground, &fleet.keys, version, random);
    let gaps = Gaps::default();
    let _reader = gaps.measure(&fleet.addresses, SERVERS);
    sleep(CALM).await;
    for fault in &plan.faults {
        let started = Instant::now();
        gaps.restart();
        let mut scene = Scene {
            fleet: &mut fleet,
            recorder: &recorder,
            writing: &ground.writing,
            random: &mut *random,
            longest: plan.longest,
        };
        fault.run(&mut scene).await;
        let (lasted, ended) = (started.elapsed(), Instant::now());
        fleet.wait_until_well().await;
        eprintln!(
            "{fault:?} took {lasted:?}, and {:?} until all was well; at most {:?} without an answer",
            ended.elapsed(),
            gaps.longest()
        );
        recorder.note("all is well");
        sleep(CALM).await;
    }
    ground.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = workload.clients.join_next().await {
        ended.unwrap();
    }
    // The last write, which each watcher waits for, and the last reads.
    let action = Action::Create { name: "last".to_owned(), value: "last".to_owned() };
    // With new connections: the old ones may be closed.
    let mut asker = ground.asker("driver");
    let written = asker.ask(0, action).await;
    let Some(Outcome::Written(last)) = written else {
        panic!("a fleet without faults takes a write: {written:?}")
    };
    workload.following.end_at(last);
    for server in 0..SERVERS {
        asker.ask(server, Action::List).await;
    }
    while let Some(ended) = wait::within("the watchers to end", workload.watchers.join_next()).await
    {
        ended.unwrap();
    }
    let history = History { last, ..recorder.history() };
    judge(&history, seed, &fleet);
}

/// Checks a history. If a promise is broken, writes it to a file and fails.
fn judge(history: &History, seed: u64, fleet: &Fleet) {
    let count = |fits: fn(&Outcome) -> bool| {
        history.operations.iter().filter(|one| fits(&one.outcome)).count()
    };
    let events: usize = history.sessions.iter().map(|one| one.events.len()).sum();
    let expired = |one: &&history::Session| one.end == history::End::Expired;
    let expired: Vec<_> = history.sessions.iter().filter(expired).collect();
    eprintln!(
        "{} operations: {} written, {} refused, {} unknown; {} streams with {events} events, {} expired, {} of them of the administrator",
        history.operations.len(),
        count(|one| matches!(one, Outcome::Written(_) | Outcome::Done)),
        count(|one| matches!(one, Outcome::Refused(_))),
        count(|one| matches!(one, Outcome::Unknown(_))),
        history.sessions.len(),
        expired.len(),
        expired.iter().filter(|one| one.user.is_none()).count(),
    );
    let violations = checker::check(history);
    if violations.is_empty() {
        return;
    }
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = directory.join(format!("history-{seed}.txt"));
    std::fs::write(&path, history.text()).unwrap();
    std::fs::write(path.with_extension("log"), fleet.logs()).unwrap();
    let told: Vec<String> =
        violations.iter().map(|one| format!("{:?}: {}", one.rule, one.text)).collect();
    panic!("seed {seed}, the history is in {}:\n{}", path.display(), told.join("\n"));
}
