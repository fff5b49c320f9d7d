//! The page of limits, compared with the constants of the server and the agent. The limits of
//! objects and requests that other crates publish are compared in [`OTHER_TEST`].

use super::constants::Constants;
use super::{Finding, SourceFile, Sources};

pub(super) const PAGE: &str = "docs/reference/limits.md";

/// The test with the rows that are not here.
pub(super) const OTHER_TEST: &str = "crates/kinds/tests/it/limits.rs";

const INPUT: &str = "crates/http/src/wire/input.rs";
const PATH: &str = "crates/http/src/stages/path.rs";
const RESPOND: &str = "crates/http/src/wire/respond.rs";
const PIPELINE: &str = "crates/server/src/pipeline/mod.rs";
const LOGIN_FAILURES: &str = "crates/server/src/pipeline/login_failures.rs";
const CONNECTION: &str = "crates/server/src/listen/connection.rs";
const FLOW: &str = "crates/flow/src/flow.rs";
const SSO: &str = "crates/sso/src/sso.rs";
const PLACES: &str = "crates/sso/src/places.rs";
const ARRIVING: &str = "crates/sso/src/arriving.rs";
const DEVICE_POLLS: &str = "crates/sso/src/device_polls.rs";
const STORE: &str = "crates/store/src/types.rs";

/// One row of the page.
struct Row {
    /// The first cell. It can have placeholders as the limit has.
    name: &'static str,
    /// The second cell. Each placeholder stands for the next number: `{count}`, `{bytes}`,
    /// `{seconds}` for a duration, and `{part}` for a divisor.
    limit: &'static str,
    /// The numbers, first those in the name: each a file and an expression over its constants.
    numbers: &'static [(&'static str, &'static str)],
}

const ROWS: &[Row] = &[
    Row {
        name: "shared secrets of a user in the namespace `default`, by the [role of every user](access-rules.md#roles-and-bindings) alone",
        limit: "{count}",
        numbers: &[("crates/registry/src/admit/counted.rs", "MAX_COMMON_SECRETS")],
    },
    Row {
        name: "instances of each kind in `spec.offer`",
        limit: "{count}",
        numbers: &[("crates/kinds/src/secret_offer.rs", "MAX_INSTANCES")],
    },
    Row {
        name: "Secrets of a subscription of an agent",
        limit: "{count}",
        numbers: &[("crates/kinds/src/kinds/secret_subscription.rs", "MAX_SECRETS")],
    },
    Row {
        name: "Secrets of one instance in a subscription",
        limit: "{count}",
        numbers: &[("crates/kinds/src/kinds/secret_subscription.rs", "MAX_OF_INSTANCE")],
    },
    Row { name: "body", limit: "{bytes}", numbers: &[(INPUT, "MAX_BODY_BYTES")] },
    Row {
        name: "[readers](shared-secrets.md#readers) of one secret that are kept",
        limit: "{count}",
        numbers: &[("crates/kinds/src/kinds/shared_secret_readers.rs", "MAX_READERS")],
    },
    Row {
        name: "notes of readers that are not stored yet, in memory",
        limit: "{bytes}, about 50,000 notes",
        numbers: &[("crates/registry/src/registry/readers/notes.rs", "MAX_BYTES")],
    },
    Row {
        name: "secrets whose readers a server stores in a minute",
        limit: "{count}",
        numbers: &[("crates/registry/src/registry/readers/stored.rs", "SECRETS_PER_ROUND")],
    },
    Row {
        name: "token of one request through an agent",
        limit: "{bytes}",
        numbers: &[("crates/auth/src/bearer.rs", "MAX_TUNNEL_TOKEN_BYTES")],
    },
    Row {
        name: "path of the management API",
        limit: "{bytes}, {count} segments",
        numbers: &[(PATH, "MAX_PATH_BYTES"), (PATH, "MAX_PATH_SEGMENTS")],
    },
    Row {
        name: "text of table cells that are kept with an object in memory",
        limit: "{bytes}",
        numbers: &[("crates/registry/src/cache/object.rs", "KEPT_CELLS_BYTES")],
    },
    Row {
        name: "Cluster or instance that keeps its decoded route in memory",
        limit: "{bytes}",
        numbers: &[("crates/registry/src/cache/object.rs", "KEPT_PART_BYTES")],
    },
    Row {
        name: "warnings",
        limit: "{count}, together {bytes}",
        numbers: &[(RESPOND, "MAX_WARNINGS"), (RESPOND, "MAX_WARNING_BYTES")],
    },
    Row {
        name: "time of a read, of a write",
        limit: "{seconds} s, {seconds} s",
        numbers: &[(PIPELINE, "READ_TIMEOUT"), (PIPELINE, "WRITE_TIMEOUT")],
    },
    Row {
        name: "failed logins of one address in a minute",
        limit: "{count}, settable; a `/64` network of IPv6 is one address, a `/48` network has four times as many",
        numbers: &[("crates/server/src/pipeline/server.rs", "DEFAULT_LOGIN_FAILURES")],
    },
    Row {
        name: "addresses with failures that are remembered",
        limit: "{count} for each kind of login",
        numbers: &[(LOGIN_FAILURES, "MAX_NETWORKS")],
    },
    Row {
        name: "bodies of logins that arrive at once, of one address",
        limit: "{count}, {count}; each {bytes} and {seconds} s",
        numbers: &[
            (ARRIVING, "MAX_ARRIVING"),
            (ARRIVING, "MAX_ARRIVING_OF_ADDRESS"),
            ("crates/sso/src/form.rs", "MAX_FORM_BYTES"),
            (ARRIVING, "BODY_TIMEOUT"),
        ],
    },
    Row {
        name: "logins through providers that are served at once, of one connector, of one address",
        limit: "{count}, {count}, {count}",
        numbers: &[(SSO, "MAX_LOGINS"), (SSO, "MAX_LOGINS_OF_CONNECTOR"), (SSO, "MAX_OF_ADDRESS")],
    },
    Row {
        name: "logouts by providers that are served at once, of one connector, of one address",
        limit: "{count}, {count}, {count}",
        numbers: &[
            (SSO, "MAX_LOGOUTS"),
            (SSO, "MAX_LOGOUTS_OF_CONNECTOR"),
            (SSO, "MAX_OF_ADDRESS"),
        ],
    },
    Row {
        name: "exchanges and logins of the command line that are served at once, of one address",
        limit: "{count}, {count}",
        numbers: &[(SSO, "MAX_EXCHANGES"), (SSO, "MAX_OF_ADDRESS")],
    },
    Row {
        name: "exchanges of tokens of one trusted issuer that are served at once",
        limit: "{count}",
        numbers: &[(SSO, "MAX_EXCHANGES_OF_ISSUER")],
    },
    Row {
        name: "requests that wait for one of these, of one address",
        limit: "{count}, {count}, for {seconds} s",
        numbers: &[
            (PLACES, "MAX_WAITING"),
            (PLACES, "MAX_WAITING_OF_ADDRESS"),
            (PLACES, "LONGEST_WAIT"),
        ],
    },
    Row {
        name: "requests with one device code",
        limit: "one in {count} s",
        numbers: &[(DEVICE_POLLS, "INTERVAL_SECONDS")],
    },
    Row {
        name: "device codes with which one address asks, of all",
        limit: "{count}, {count}",
        numbers: &[(DEVICE_POLLS, "MAX_CODES_OF_ADDRESS"), (DEVICE_POLLS, "MAX_CODES")],
    },
    Row {
        name: "sessions of one access key, logins of one owner by one connector",
        limit: "{count}",
        numbers: &[("crates/registry/src/admit/counted.rs", "MAX_SESSIONS")],
    },
    Row {
        name: "requests of one AccessPreview",
        limit: "{count}",
        numbers: &[("crates/kinds/src/kinds/reviews/access_preview.rs", "MAX_REQUESTS")],
    },
    Row {
        name: "endpoint token",
        limit: "{bytes}",
        numbers: &[("crates/auth/src/bearer.rs", "MAX_TOKEN_BYTES")],
    },
    Row {
        name: "managers that apply, that update",
        limit: "{count}, {count}",
        numbers: &[
            ("crates/registry/src/admit/fields.rs", "MAX_APPLY_MANAGERS"),
            ("crates/meta/src/apply/managers.rs", "MAX_UPDATE_MANAGERS"),
        ],
    },
    Row {
        name: "changes in a transaction",
        limit: "{count} changes, {count} conditions",
        numbers: &[(STORE, "CHANGES_PER_TXN"), (STORE, "CONDITIONS_PER_TXN")],
    },
    Row {
        name: "reads, writes in flight",
        limit: "{count}, {count}, settable",
        numbers: &[(FLOW, "Limits.reading"), (FLOW, "Limits.writing")],
    },
    Row {
        name: "reads of one owner in flight",
        limit: "{part} of the slots",
        numbers: &[(FLOW, "MAX_READ_FRACTION.1")],
    },
    Row {
        name: "writes of one owner in flight",
        limit: "{part} of the slots; all but {part} while no other owner sends requests",
        numbers: &[(FLOW, "MAX_WRITE_FRACTION.1"), (FLOW, "RESERVED_WRITE_FRACTION.1")],
    },
    Row {
        name: "waiting reads, writes of one owner",
        limit: "{count}, {count}, for {seconds} s",
        numbers: &[
            (FLOW, "READS_WAITING_PER_OWNER"),
            (FLOW, "WRITES_WAITING_PER_OWNER"),
            (FLOW, "LONGEST_WAIT"),
        ],
    },
    Row {
        name: "requests to clusters that wait for the head of a response",
        limit: "{count}; one owner {part}",
        numbers: &[(FLOW, "PROXIED_SLOTS"), (FLOW, "MAX_PROXIED_FRACTION.1")],
    },
    Row {
        name: "requests to clusters of one owner that wait for such a slot",
        limit: "{count}, for {seconds} s",
        numbers: &[(FLOW, "PROXIED_WAITING_PER_OWNER"), (FLOW, "LONGEST_WAIT")],
    },
    Row {
        name: "open watches and requests to clusters of one owner",
        limit: "{count}, settable",
        numbers: &[(FLOW, "Limits.watches_per_owner")],
    },
    Row {
        name: "large work (above {bytes}, YAML above {bytes})",
        limit: "{count} at once; one owner {part}",
        numbers: &[
            ("crates/flow/src/large.rs", "LARGE_BYTES"),
            ("crates/server/src/pipeline/verbs.rs", "LARGE_YAML_BYTES"),
            (FLOW, "LARGE_SLOTS"),
            (FLOW, "MAX_LARGE_FRACTION.1"),
        ],
    },
    Row {
        name: "access keys of one owner",
        limit: "{count}, settable",
        numbers: &[("crates/registry/src/admit/view.rs", "UserPolicy.max_per_owner")],
    },
    Row {
        name: "sessions of one owner, with logins of the command line and without logins by connectors",
        limit: "{count}, settable",
        numbers: &[("crates/registry/src/admit/view.rs", "UserPolicy.max_per_owner")],
    },
    Row {
        name: "message of a WebSocket client",
        limit: "{bytes}",
        numbers: &[("crates/http/src/wire/websocket.rs", "MAX_CLIENT_MESSAGE_BYTES")],
    },
    Row {
        name: "request bodies in transit",
        limit: "{bytes} in total; one owner {part} of the free part, at most {bytes} if alone",
        numbers: &[
            (FLOW, "BODY_BYTES.total"),
            (FLOW, "BODY_BYTES.free_times"),
            (FLOW, "BODY_BYTES.total / (BODY_BYTES.free_times + 1)"),
        ],
    },
    Row {
        name: "responses that clients have not taken",
        limit: "{bytes} in total; one owner {part} of the free part, at most {bytes} if alone",
        numbers: &[
            (FLOW, "RESPONSE_BYTES.total"),
            (FLOW, "RESPONSE_BYTES.free_times"),
            (FLOW, "RESPONSE_BYTES.total / (RESPONSE_BYTES.free_times + 1)"),
        ],
    },
    Row {
        name: "{bytes} of a response",
        limit: "{seconds} s until the client has taken them",
        numbers: &[
            ("crates/http/src/wire/list.rs", "CHUNK_BYTES"),
            ("crates/server/src/listen/sending.rs", "STALL_TIMEOUT"),
        ],
    },
    Row {
        name: "a log, an exec, or another stream or response of a cluster",
        limit: "{seconds} s (4 h) without a byte that the client takes (`--stream-stall`); {bytes} are held",
        numbers: &[
            ("crates/proxy/src/shared.rs", "STREAM_STALL"),
            ("crates/http/src/wire/list.rs", "CHUNK_BYTES"),
        ],
    },
    Row {
        name: "bytes that one owner writes in a minute",
        limit: "{bytes}, settable; not for `system:masters`",
        numbers: &[(FLOW, "Limits.write_bytes_per_owner")],
    },
    Row {
        name: "bytes that secret sync copies for one writer in a minute",
        limit: "the same number, counted separately, also for `system:masters`",
        numbers: &[],
    },
    Row {
        name: "free disk space",
        limit: "{bytes}",
        numbers: &[("crates/store/src/redb/committer.rs", "RESERVE_BYTES")],
    },
    Row {
        name: "connections",
        limit: "{count}, or fewer if the limit of open files is lower",
        numbers: &[("crates/listen/src/table.rs", "MAX_CONNECTIONS")],
    },
    Row {
        name: "connections of one address (an IPv6 network of 64 bits)",
        limit: "half of all",
        numbers: &[],
    },
    Row { name: "unauthenticated connections", limit: "half of all", numbers: &[] },
    Row {
        name: "an unauthenticated connection",
        limit: "{seconds} s; a request that has begun is answered",
        numbers: &[("crates/listen/src/unauthenticated.rs", "UNAUTHENTICATED_TIMEOUT")],
    },
    Row {
        name: "TLS handshake",
        limit: "{seconds} s",
        numbers: &[("crates/listen/src/guarded.rs", "HANDSHAKE_TIMEOUT")],
    },
    Row {
        name: "streams of an HTTP/2 connection",
        limit: "{count}; unauthenticated {count}, of which {count} are served at once",
        numbers: &[
            ("crates/listen/src/http.rs", "MAX_STREAMS"),
            (CONNECTION, "MAX_UNAUTHENTICATED_STREAMS"),
            ("crates/server/src/pipeline/client.rs", "MAX_UNAUTHENTICATED_STREAMS"),
        ],
    },
    Row {
        name: "unauthenticated streams in total",
        limit: "{count}, plus the first {count} of each connection",
        numbers: &[
            (CONNECTION, "MAX_ALL_UNAUTHENTICATED_STREAMS"),
            (CONNECTION, "FREE_UNAUTHENTICATED_STREAMS"),
        ],
    },
    Row {
        name: "requests of one caller",
        limit: "{count}",
        numbers: &[("crates/agent/src/flow.rs", "MAX_REQUESTS")],
    },
    Row {
        name: "watches and streams of one caller",
        limit: "{count}",
        numbers: &[("crates/agent/src/flow.rs", "MAX_LONG_REQUESTS")],
    },
    Row {
        name: "virtual clusters in use",
        limit: "{count}",
        numbers: &[("crates/agent/src/virtual_clusters/mod.rs", "MAX_TRACKED")],
    },
    Row {
        name: "audit queue",
        limit: "{bytes}",
        numbers: &[("crates/agent/src/audit/queue.rs", "MAX_BYTES")],
    },
    Row {
        name: "Secrets of a space or virtual cluster that the agent fills",
        limit: "{count}",
        numbers: &[("crates/kinds/src/kinds/secret_subscription.rs", "MAX_OF_INSTANCE")],
    },
    Row {
        name: "Secrets of a cluster that the agent fills",
        limit: "{count}",
        numbers: &[("crates/kinds/src/kinds/secret_subscription.rs", "MAX_SECRETS")],
    },
    Row {
        name: "deliveries of data to Secrets at once",
        limit: "{count}",
        numbers: &[("crates/agent/src/secrets/subscription.rs", "MAX_DELIVERIES")],
    },
    Row {
        name: "namespaces that the agent watches, with `--secrets bound`",
        limit: "{count}",
        numbers: &[("crates/agent/src/secrets/watcher.rs", "MAX_NAMESPACES")],
    },
    Row {
        name: "virtual clusters whose Secrets the agent lists",
        limit: "{count}",
        numbers: &[("crates/agent/src/secrets/watcher.rs", "MAX_VIRTUAL_CLUSTERS")],
    },
    Row {
        name: "Events about Secrets in a minute",
        limit: "{count}",
        numbers: &[("crates/agent/src/secrets/events.rs", "MAX_PER_MINUTE")],
    },
    Row {
        name: "Events about Secrets of one namespace in a minute",
        limit: "{count}",
        numbers: &[("crates/agent/src/secrets/events.rs", "MAX_OF_NAMESPACE")],
    },
    Row {
        name: "idle tunnels of an agent to each server",
        limit: "{count} to {count}",
        numbers: &[
            ("crates/agent/src/tunnel_pool.rs", "MIN_IDLE"),
            ("crates/agent/src/tunnel_pool.rs", "MAX_IDLE"),
        ],
    },
    Row {
        name: "idle tunnels of one cluster that a server keeps",
        limit: "{count}",
        numbers: &[("crates/proxy/src/pool.rs", "KEPT_TUNNELS")],
    },
    Row {
        name: "tunnels of one cluster at a server",
        limit: "{count}",
        numbers: &[("crates/gateway/src/tunnels.rs", "MAX_TUNNELS_OF_CLUSTER")],
    },
    Row {
        name: "agents of one cluster with tunnels at a server",
        limit: "{count}",
        numbers: &[("crates/gateway/src/tunnels.rs", "MAX_AGENTS_OF_CLUSTER")],
    },
    Row {
        name: "requests that wait for a tunnel of one cluster",
        limit: "{count}",
        numbers: &[("crates/proxy/src/pool.rs", "MAX_WAITING")],
    },
    Row {
        name: "silence of a tunnel",
        limit: "{seconds} s",
        numbers: &[("crates/tunnel/src/carry.rs", "SILENCE")],
    },
    Row {
        name: "records that the server takes from one cluster",
        limit: "{bytes} a second, {bytes} at once",
        numbers: &[
            ("crates/audit/src/report_limits.rs", "BYTES_PER_SECOND"),
            ("crates/audit/src/report_limits.rs", "MAX_BYTES_AT_ONCE"),
        ],
    },
];

/// Compares each row of the page with [`ROWS`], or finds it in the other test.
pub(super) fn check(page: &str, other_test: &str, sources: &Sources<'_>) -> Vec<Finding> {
    let value = |path: &'static str, expression: &str| {
        let of = |file: &SourceFile| Constants::of(&file.syntax).value(expression);
        sources.below(path).find_map(of)
    };
    compare(page, other_test, ROWS, value)
}

fn compare(
    page: &str,
    other_test: &str,
    rows: &[Row],
    value: impl Fn(&'static str, &str) -> Option<u64>,
) -> Vec<Finding> {
    let finding = |line, message| Finding { path: PAGE.into(), line, message };
    let mut findings = Vec::new();
    let mut expected = Vec::new();
    for row in rows {
        match row.cells(&value) {
            Ok(cells) => expected.push(cells),
            Err(message) => findings.push(finding(1, message)),
        }
    }
    let is_complete = findings.is_empty();
    let found: Vec<_> = page.lines().enumerate().filter_map(cells).collect();
    for (name, limit) in &expected {
        if !found.iter().any(|(_, found, _)| found == name) {
            findings.push(finding(1, format!("there is no row `{name}`: its limit is {limit}")));
        }
    }
    for (line, name, limit) in found {
        let of_name = expected.iter().find(|(expected, _)| expected == name);
        let is_elsewhere = other_test.contains(&format!("\"{name}\""));
        match of_name {
            Some((_, expected)) if expected != limit => {
                findings.push(finding(line, format!("the limit of `{name}` is {expected}")));
            }
            None if !is_elsewhere && is_complete => {
                let message = format!("nothing compares `{name}` with the code: add it to ROWS");
                findings.push(finding(line, message));
            }
            _ => {}
        }
    }
    findings
}

/// The line and the first two cells of a row with a limit.
fn cells((index, line): (usize, &str)) -> Option<(usize, &str, &str)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let (name, limit) = (cells.next()?, cells.next()?);
    (name != "what").then_some((index + 1, name, limit))
}

impl Row {
    /// The first two cells, with the numbers in place.
    ///
    /// # Errors
    /// Which constant does not exist.
    fn cells(
        &self,
        value: impl Fn(&'static str, &str) -> Option<u64>,
    ) -> Result<(String, String), String> {
        let missing = |path, name| format!("`{}`: {path} has no number {name}", self.name);
        let values = self.numbers.iter();
        let values: Result<Vec<_>, _> = values
            .map(|(path, name)| value(path, name).ok_or_else(|| missing(path, name)))
            .collect();
        let mut values = values?.into_iter();
        let name = filled(self.name, &mut values);
        let limit = filled(self.limit, &mut values);
        Ok((name, limit))
    }
}

/// A text with the next numbers for its placeholders.
fn filled(template: &str, values: &mut impl Iterator<Item = u64>) -> String {
    let mut parts = template.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (unit, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = values.next().unwrap_or_default();
        text.push_str(&match unit {
            "bytes" => bytes(value),
            "seconds" => (value / 1000).to_string(),
            "part" => fraction(value),
            _ => count(value),
        });
        text.push_str(rest);
    }
    text
}

fn bytes(count: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    match count {
        _ if count >= MIB && count.is_multiple_of(MIB) => format!("{} MiB", count / MIB),
        _ if count >= 4096 && count.is_multiple_of(1024) => format!("{} KiB", count / 1024),
        _ => format!("{count} bytes"),
    }
}

/// A count with commas, from ten thousand on.
fn count(number: u64) -> String {
    if number < 10_000 {
        return number.to_string();
    }
    format!("{},{:03}", number / 1000, number % 1000)
}

/// A fraction with this divisor, in words.
fn fraction(divisor: u64) -> String {
    match divisor {
        2 => "half".to_owned(),
        3 => "a third".to_owned(),
        4 => "a quarter".to_owned(),
        8 => "an eighth".to_owned(),
        _ => format!("1/{divisor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &[Row] = &[
        Row {
            name: "x (above {bytes})",
            limit: "{count} for {seconds} s; one {part}",
            numbers: &[("a.rs", "A"), ("a.rs", "B"), ("a.rs", "C"), ("a.rs", "D")],
        },
        Row { name: "y", limit: "none", numbers: &[] },
    ];

    fn found(page: &str, other_test: &str) -> Vec<String> {
        let value = |_: &'static str, name: &str| match name {
            "A" => Some(64 * 1024),
            "B" => Some(10_000),
            "C" => Some(5000),
            "D" => Some(4),
            _ => None,
        };
        let findings = compare(page, other_test, SAMPLES, value);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_with_the_limits_of_the_code_passes() {
        let page = "| what | limit | beyond it |\n|---|---|---|\n\
                    | x (above 64 KiB) | 10,000 for 5 s; one a quarter | 429 |\n\
                    | y | none | 400 |\n| z | 3 | 404 |\n";
        assert_eq!(found(page, "(\"z\", 3)"), [""; 0]);
        assert_eq!(
            found(page, ""),
            [format!("{PAGE}:5: nothing compares `z` with the code: add it to ROWS")]
        );
    }

    #[test]
    fn another_number_and_a_missing_row_are_found() {
        assert_eq!(
            found("| x (above 64 KiB) | 9 for 5 s; one a quarter | 429 |\n", ""),
            [
                format!("{PAGE}:1: there is no row `y`: its limit is none"),
                format!(
                    "{PAGE}:1: the limit of `x (above 64 KiB)` is 10,000 for 5 s; one a quarter"
                ),
            ]
        );
    }

    #[test]
    fn a_constant_that_is_gone_is_named() {
        let row = Row { name: "x", limit: "{count}", numbers: &[("a.rs", "GONE")] };
        let cells = row.cells(|_, _| None);
        assert_eq!(cells, Err("`x`: a.rs has no number GONE".to_owned()));
    }

    #[test]
    fn each_row_has_a_number_for_each_placeholder() {
        for row in ROWS {
            let placeholders = row.name.matches('{').count() + row.limit.matches('{').count();
            assert_eq!(placeholders, row.numbers.len(), "{}", row.name);
        }
    }
}
