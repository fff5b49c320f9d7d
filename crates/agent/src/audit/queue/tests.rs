//! The queue keeps the accepted records, in order, until they are removed; and it is bounded.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn event(id: &str) -> AuditEvent {
    AuditEvent { audit_id: id.to_owned(), ..AuditEvent::default() }
}

fn line(id: &str) -> Line {
    Line { text: line_of(&event(id)), tells: 0 }
}

fn open(home: &tempfile::TempDir, max_bytes: u64) -> Queue {
    Queue::open(&home.path().join("audit"), max_bytes).unwrap()
}

async fn read_all(queue: &Queue) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(segment) = queue.oldest().await {
        let (events, _) = queue.read(segment).await.unwrap();
        ids.extend(events.into_iter().map(|event| event.audit_id));
        queue.remove(segment).await;
    }
    ids
}

#[tokio::test]
async fn records_are_there_in_order_after_a_restart_without_what_was_cut_off() {
    let home = tempfile::tempdir().unwrap();
    let lost = Arc::<LossCounter>::default();
    let queue = open(&home, MAX_BYTES);
    queue.append(line("1"), &lost);
    queue.append_first(line("2"), &Arc::default()).await.unwrap();
    let first = queue.oldest().await.unwrap();
    assert_eq!(queue.oldest().await, Some(first), "until it is removed");
    queue.append_first(line("3"), &Arc::default()).await.unwrap();
    drop(queue);
    let files =
        || fs::read_dir(home.path().join("audit")).unwrap().map(|file| file.unwrap().path());
    let newest = files().max().unwrap();
    assert_eq!(fs::metadata(&newest).unwrap().permissions().mode() & 0o777, 0o600);
    let mut file = OpenOptions::new().append(true).open(&newest).unwrap();
    file.write_all(b"{\"auditID\":\"4").unwrap();
    let queue = open(&home, MAX_BYTES);
    queue.append_first(line("5"), &Arc::default()).await.unwrap();
    assert_eq!(read_all(&queue).await, ["1", "2", "3", "5"]);
    assert_eq!((queue.bytes(), files().count()), (0, 0));
}

#[tokio::test]
async fn what_is_read_fills_three_quarters_and_changes_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let one = line("1").text.len() as u64;
    let queue = open(&home, one * 8);
    let lost = Arc::<LossCounter>::default();
    for _ in 0..10 {
        queue.append(line("1"), &lost);
        // Each is in the file before the next one comes.
        let (close, is_closed) = oneshot::channel();
        queue.commands.send(Command::Close(close)).unwrap();
        is_closed.await.unwrap();
    }
    assert_eq!((queue.bytes(), lost.total()), (6 * one, 4));
    assert_eq!(queue.append_first(line("2"), &Arc::default()).await, Ok(()));
    assert_eq!(queue.append_first(line("2"), &Arc::default()).await, Ok(()));
    assert_eq!(queue.append_first(line("2"), &Arc::default()).await, Err(Unrecorded));
    let oldest = queue.oldest().await.unwrap();
    queue.remove(oldest).await;
    assert_eq!(queue.append_first(line("2"), &Arc::default()).await, Ok(()));
}

#[tokio::test]
async fn what_the_central_server_does_not_take_is_sent_again_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let queue = open(&home, MAX_BYTES);
    queue.append_first(line("1"), &Arc::default()).await.unwrap();
    let segment = queue.oldest().await.unwrap();
    queue.append_first(line("3"), &Arc::default()).await.unwrap();
    assert_eq!(queue.set_aside(segment, &[event("1")]).await, 0);
    assert_eq!(read_all(&queue).await, ["3"], "the central server has the others");
    assert_eq!(queue.bytes(), 0, "what is set aside takes no room from changes");
    queue.append_first(line("2"), &Arc::default()).await.unwrap();
    drop(queue);
    assert_eq!(read_all(&open(&home, MAX_BYTES)).await, ["1", "2"]);
}

#[tokio::test]
async fn what_is_set_aside_is_bounded_and_the_oldest_is_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let queue = open(&home, MAX_BYTES);
    let large = AuditEvent { user_agent: "x".repeat(1024 * 1024), ..event("1") };
    let mut forgotten = Vec::new();
    for _ in 0..5 {
        queue.append_first(line("1"), &Arc::default()).await.unwrap();
        let segment = queue.oldest().await.unwrap();
        forgotten.push(queue.set_aside(segment, &[large.clone(), event("2")]).await);
    }
    assert_eq!(forgotten, [0, 0, 0, 2, 2], "records of a MiB each, and there are 4");
    drop(queue);
    assert_eq!(read_all(&open(&home, MAX_BYTES)).await.len(), 6);
}

#[tokio::test]
async fn files_have_no_more_records_than_are_sent_at_once() {
    let home = tempfile::tempdir().unwrap();
    let queue = open(&home, MAX_BYTES);
    let lost = Arc::<LossCounter>::default();
    for _ in 0..3 {
        for _ in 0..SEGMENT_RECORDS {
            let waiting =
                Waiting { line: line("1"), written: None, _read: None, lost: Arc::clone(&lost) };
            queue.commands.send(Command::Append(waiting)).unwrap();
        }
    }
    let mut counts = Vec::new();
    while let Some(segment) = queue.oldest().await {
        counts.push(queue.read(segment).await.unwrap().0.len());
        queue.remove(segment).await;
    }
    assert_eq!(counts.iter().sum::<usize>(), 3 * SEGMENT_RECORDS);
    let max = postern_kinds::audit_event_list::MAX_EVENTS;
    assert!(counts.iter().all(|count| *count <= max), "{counts:?}");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_refuses_changes_and_counts_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let queue = open(&home, MAX_BYTES);
    let dir = home.path().join("audit");
    fs::remove_dir(&dir).unwrap();
    assert_eq!(queue.append_first(line("1"), &Arc::default()).await, Err(Unrecorded));
    let lost = Arc::<LossCounter>::default();
    queue.append(line("2"), &lost);
    // It is behind the first record.
    assert_eq!(queue.append_first(line("3"), &Arc::default()).await, Err(Unrecorded));
    assert_eq!(lost.total(), 1);
    fs::create_dir(&dir).unwrap();
    assert_eq!(queue.append_first(line("4"), &Arc::default()).await, Ok(()));
    assert_eq!(read_all(&queue).await, ["4"]);
}

/// A full queue, a queue with a thread that is behind, and a disk that accepts nothing.
#[tokio::test]
async fn what_a_record_would_have_told_is_told_by_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    let full = open(&home, 1);
    let lost = Arc::<LossCounter>::default();
    lost.note(5);
    let telling = |lost: &LossCounter| Line { tells: lost.take(), ..line("1") };
    full.append(telling(&lost), &lost);
    assert_eq!((lost.total(), lost.unreported.load(Ordering::Relaxed)), (6, 6));
    assert_eq!(full.append_first(telling(&lost), &lost).await, Err(Unrecorded));
    assert_eq!(lost.take(), 6, "nothing was changed, so no record is missing");
    lost.note(1);
    let (commands, _received) = sync_channel(0);
    let behind = Queue { commands, reads: full.reads.clone(), shared: full.shared.clone() };
    assert_eq!(behind.append_first(telling(&lost), &lost).await, Err(Unrecorded));
    assert_eq!((lost.total(), lost.take()), (7, 1));
    let queue = open(&home, MAX_BYTES);
    fs::remove_dir(home.path().join("audit")).unwrap();
    lost.note(1);
    queue.append(telling(&lost), &lost);
    // It is behind the first record.
    assert_eq!(queue.append_first(line("2"), &lost).await, Err(Unrecorded));
    assert_eq!((lost.total(), lost.take()), (9, 2));
}

/// The thread writes nothing, as when the disk stalls.
#[tokio::test(start_paused = true)]
async fn reads_leave_room_for_the_records_of_changes_that_wait_for_the_thread() {
    let home = tempfile::tempdir().unwrap();
    let (commands, received) = sync_channel(WAITING_RECORDS);
    let queue = Queue { commands, ..open(&home, MAX_BYTES) };
    let lost = Arc::<LossCounter>::default();
    for _ in 0..WAITING_RECORDS {
        queue.append(line("1"), &lost);
    }
    assert_eq!(lost.total(), 256);
    // It waits, and is never written.
    assert_eq!(queue.append_first(line("2"), &lost).await, Err(Unrecorded));
    assert_eq!(received.try_iter().count(), 769);
}
