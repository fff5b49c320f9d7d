//! Objects that the caller may not see are reported as missing. This applies to the platform's own
//! group: every response about such an object equals the response about a missing name, byte for
//! byte.

use crate::matrix::fixture::{Fixture, OURS, Target};
use crate::matrix::tables::Answered;
use crate::matrix::world::World;

/// The requests about single objects, of all rows, by which a
/// caller can tell that an object exists which they may not get.
pub(crate) fn telling(world: &World, table: &[Answered]) -> Vec<String> {
    let mut telling = Vec::new();
    if world.fixture.group != OURS {
        return telling;
    }
    for (at, identity) in world.identities.iter().enumerate() {
        for target in world.fixture.targets() {
            if world.fixture.has(target) && !may_get(table, target, at) {
                telling_about(world, table, target, at, identity.code, &mut telling);
            }
        }
    }
    telling
}

fn is_get(answered: &Answered) -> bool {
    let row = &answered.row;
    row.operation.method == "GET" && row.how.is_empty() && row.operation.path.ends_with("/{name}")
}

/// Whether the identity with this number may get the target.
pub(crate) fn may_get(table: &[Answered], target: Target, at: usize) -> bool {
    let mut rows = table.iter().filter(|one| is_get(one) && one.row.target == Some(target));
    rows.any(|one| one.answers[at].status == 200)
}

fn telling_about(
    world: &World,
    table: &[Answered],
    target: Target,
    at: usize,
    code: &str,
    telling: &mut Vec<String>,
) {
    let about = |wanted| {
        let of_objects = move |one: &&Answered| {
            one.row.target == Some(wanted) && one.row.operation.path.contains("/{name}")
        };
        table.iter().filter(of_objects)
    };
    for there in about(target) {
        let same = |one: &&Answered| {
            one.row.operation == there.row.operation && one.row.how == there.row.how
        };
        let absent =
            about(target.nothing_there()).find(same).expect("each row has one about nothing");
        let there_answer = &there.answers[at];
        let absent_answer = &absent.answers[at];
        let absent_text = about_name(&world.fixture, target, &absent_answer.body);
        if (there_answer.status, &there_answer.body) != (absent_answer.status, &absent_text) {
            telling.push(format!(
                "{code}: {} {} {}\n  is {}: {} {}\n  absent: {} {absent_text}",
                there.row.operation.method,
                there.row.operation.path,
                there.row.how,
                target.word(),
                there_answer.status,
                there_answer.body,
                absent_answer.status,
            ));
        }
    }
}

/// An answer about a name that does not exist, as it would be about another name.
fn about_name(fixture: &Fixture, target: Target, body: &str) -> String {
    let (absent, name) = (fixture.name(Target::Absent), fixture.name(target));
    let quoted = |text: &str| format!("\\\"{text}\\\"");
    let text = body.replace(&quoted(absent), &quoted(name));
    text.replace(&format!("\"{absent}\""), &format!("\"{name}\""))
}
