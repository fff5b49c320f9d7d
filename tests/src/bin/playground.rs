//! `cargo xtask playground`: starts the playground and keeps it running until a signal, or checks it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "a developer's program: it prints what there is, and a panic of the harness is its error"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use postern_tests::Home;
use postern_tests::fleet_playground::FleetPlayground;
use postern_tests::kubectl::Kubectl;
use postern_tests::playground::Playground;
use tokio::signal::unix::{SignalKind, signal};

/// The arguments of the command line.
struct Arguments {
    check: bool,
    with_kubernetes: bool,
    /// Three servers on one etcd, and no clusters.
    fleet: bool,
    directory: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("error: {what}");
            return ExitCode::from(2);
        }
    };
    // A panic of the harness is an error of this program. Unwinding ends everything that was started.
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        eprintln!("error: {}", text.unwrap_or("something failed"));
    }));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    runtime.block_on(run(&arguments))
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed =
        Arguments { check: false, with_kubernetes: false, fleet: false, directory: None };
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--check") => parsed.check = true,
            Some("--fleet") => parsed.fleet = true,
            Some("--with-kubernetes") => parsed.with_kubernetes = true,
            Some("--dir") => {
                let directory = words.next().ok_or("--dir takes a directory")?;
                parsed.directory = Some(directory.into());
            }
            _ => return Err(format!("{} is not understood", word.display())),
        }
    }
    let in_use = |directory: &PathBuf| {
        directory.read_dir().is_ok_and(|mut entries| entries.next().is_some())
    };
    match parsed.directory.as_ref().filter(|directory| in_use(directory)) {
        Some(directory) => Err(format!("{} is not empty", directory.display())),
        None => Ok(parsed),
    }
}

async fn run(arguments: &Arguments) -> ExitCode {
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be waited for");
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be waited for");
    let mut hangup = signal(SignalKind::hangup()).expect("signals can be waited for");
    let home = arguments.directory.as_deref().map_or_else(Home::new, Home::at);
    println!("starting everything in {}", home.path().display());
    let stopped = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    if arguments.check {
        // Says so at once when there is none.
        drop(Kubectl::program());
    }
    let serve = async {
        if arguments.fleet {
            return Box::pin(serve_fleet(home.clone(), arguments.check)).await;
        }
        let playground = Playground::start(home.clone(), arguments.with_kubernetes).await;
        if arguments.check {
            Box::pin(playground.check()).await;
            let ways: Vec<_> = playground.ways().collect();
            println!("kubectl gets, applies and watches by each way in: {}", ways.join(", "));
            playground.stop().await;
            return;
        }
        println!("\n{}\nCtrl-C ends everything.", playground.describe());
        std::future::pending::<()>().await;
    };
    // The servers and agents end when their future is dropped, even if the signal comes during the start.
    tokio::select! {
        () = Box::pin(serve) => {}
        () = stopped => println!("everything is ended"),
    }
    ExitCode::SUCCESS
}

async fn serve_fleet(home: Home, check: bool) {
    let mut playground = FleetPlayground::start(home).await;
    if check {
        Box::pin(playground.check()).await;
        println!("kubectl works with all, without one server, and without one member of etcd");
        return playground.stop().await;
    }
    println!("\n{}\nCtrl-C ends everything.", playground.describe());
    std::future::pending::<()>().await;
}
