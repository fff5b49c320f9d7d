//! The figures of a store on other machines, which several servers share. Without such a store, the metrics have no
//! values.

use std::fmt::Write as _;

use postern_store::{MemberFigures, RemoteFigures};

use super::format::{head, seconds};

/// Appends the metrics of a remote store.
pub(super) fn write(text: &mut String, figures: Option<&RemoteFigures>) {
    let of = |value: fn(&RemoteFigures) -> String| figures.map(value);
    for (name, kind, help, value) in [
        (
            "servers",
            "gauge",
            "Servers that share the store, as this server knows them.",
            of(|figures| figures.servers.to_string()),
        ),
        (
            "answer_age_seconds",
            "gauge",
            "Seconds since the remote store answered this server last.",
            of(|figures| {
                seconds(u64::try_from(figures.answer_age.as_micros()).unwrap_or(u64::MAX))
            }),
        ),
        (
            "epoch",
            "gauge",
            "The number of the epoch of the remote store, which rises when it was restored.",
            of(|figures| figures.epoch.to_string()),
        ),
        (
            "watch_restarts_total",
            "counter",
            "Watches of the remote store that were lost and opened again.",
            of(|figures| figures.watch_restarts.to_string()),
        ),
        (
            "watch_gaps_total",
            "counter",
            "Transactions that a watch of the remote store got twice or missed.",
            of(|figures| figures.watch_gaps.to_string()),
        ),
    ] {
        let name = format!("postern_store_{name}");
        head(text, &name, kind, help);
        if let Some(value) = value {
            let _ = writeln!(text, "{name} {value}");
        }
    }
    let name = "postern_store_alarm";
    head(text, name, "gauge", "Alarms of the remote store: 1 if it is raised.");
    for (alarm, is_raised) in figures.into_iter().flat_map(alarms) {
        let _ = writeln!(text, "{name}{{alarm=\"{alarm}\"}} {}", u8::from(is_raised));
    }
    members(text, figures.map_or(&[], |figures| &figures.members));
}

fn alarms(figures: &RemoteFigures) -> [(&'static str, bool); 2] {
    [("full", figures.is_full), ("corrupt", figures.is_corrupt)]
}

/// The label is the address in the settings of this server, which has no character that needs escaping.
fn members(text: &mut String, members: &[MemberFigures]) {
    let mut gauge = |name: &str, help: &str, value: fn(&MemberFigures) -> Option<u64>| {
        let name = format!("postern_store_member_{name}");
        head(text, &name, "gauge", help);
        for member in members {
            if let Some(value) = value(member) {
                let _ = writeln!(text, "{name}{{member=\"{}\"}} {value}", member.address);
            }
        }
    };
    let help = "Whether a member of the remote store answers this server: 1 if so.";
    gauge("up", help, |member| Some(u64::from(member.answers)));
    let help = "Bytes of the database of a member of the remote store.";
    gauge("size_bytes", help, |member| member.size_bytes);
    let help = "Bytes of that database that are in use.";
    gauge("used_bytes", help, |member| member.used_bytes);
    let help = "The most bytes that this database may have.";
    gauge("quota_bytes", help, |member| member.quota_bytes);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn values(figures: Option<&RemoteFigures>) -> Vec<String> {
        let mut text = String::new();
        write(&mut text, figures);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn a_remote_store_has_the_figures_of_each_member() {
        let answering = MemberFigures {
            address: "a:2379".to_owned(),
            answers: true,
            size_bytes: Some(4096),
            used_bytes: Some(1024),
            quota_bytes: None,
        };
        let silent = MemberFigures { address: "b:2379".to_owned(), ..MemberFigures::default() };
        let figures = RemoteFigures {
            servers: 3,
            answer_age: Duration::from_millis(1500),
            epoch: 1,
            watch_restarts: 2,
            watch_gaps: 0,
            members: vec![answering, silent],
            is_full: true,
            is_corrupt: false,
        };
        assert_eq!(
            values(Some(&figures)),
            [
                "postern_store_servers 3",
                "postern_store_answer_age_seconds 1.5",
                "postern_store_epoch 1",
                "postern_store_watch_restarts_total 2",
                "postern_store_watch_gaps_total 0",
                "postern_store_alarm{alarm=\"full\"} 1",
                "postern_store_alarm{alarm=\"corrupt\"} 0",
                "postern_store_member_up{member=\"a:2379\"} 1",
                "postern_store_member_up{member=\"b:2379\"} 0",
                "postern_store_member_size_bytes{member=\"a:2379\"} 4096",
                "postern_store_member_used_bytes{member=\"a:2379\"} 1024",
            ]
        );
    }

    #[test]
    fn a_store_in_a_file_has_no_such_figures() {
        assert_eq!(values(None), [""; 0]);
    }
}
