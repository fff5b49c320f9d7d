//! Connections that are opened and not used, or used for nothing but frames that cost little to send.

use std::time::{Duration, Instant};

use postern_tests::http::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::attacks::frames::{self, Frames, Streams, fields, frame};
use crate::attacks::load::repeat;
use crate::attacks::raw_http1::Wire;
use crate::attacks::scene::{Scene, pass};
use crate::attacks::trial::{SLOWDOWN, hold};
use crate::attacks::victims::Victims;
use postern_tests::Form;

/// File descriptors of the server in the short form.
const FEW_DESCRIPTORS: usize = 768;

/// Descriptors that this process keeps for everything except the attack.
const OWN_DESCRIPTORS: u64 = 1_000;

/// How long a connection may stay open that brings no valid key: half a minute, and time for the
/// machine to close thousands of them.
const STRANGER_MAX: Duration = Duration::from_secs(40);

/// Starts a server that has few descriptors in the short form.
async fn scene() -> (Scene, Victims) {
    let scene = match Form::of_figures() {
        Form::Short => Scene::with_descriptors(FEW_DESCRIPTORS).await,
        Form::Full => Scene::start(&[]).await,
    };
    let victims = Victims::new(&scene).await;
    (scene, victims)
}

/// How many connections of one address are more than the server should give to it.
fn too_many(form: Form) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = limit.unwrap_or(u64::MAX).saturating_sub(OWN_DESCRIPTORS);
    usize::try_from(most).unwrap_or(usize::MAX).min(form.pick(1_000, 10_500))
}

/// Opens connections, and holds each until the server closes it or the time is over. Returns how
/// long those were open that the server let in.
async fn hold_all<O, W>(scene: &Scene, open: O) -> Vec<Duration>
where
    O: Fn(Instant) -> W,
    W: Future<Output = Option<Duration>> + Send + 'static,
{
    let end = Instant::now() + scene.form.pick(Duration::from_secs(10), Duration::from_mins(1));
    let mut tasks = JoinSet::new();
    for number in 0..too_many(scene.form) {
        tasks.spawn(open(end));
        // In waves, and not all handshakes in one moment.
        if number % 50 == 49 {
            pass(Duration::from_millis(20)).await;
        }
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Checks how long unauthenticated clients could stay.
fn all_closed(scene: &Scene, open: &[Duration]) {
    let longest = open.iter().max().copied().unwrap_or_default();
    eprintln!("{} connections were let in, the longest for {longest:?}", open.len());
    if scene.form == Form::Full {
        assert!(
            longest < STRANGER_MAX,
            "a connection without a valid key was open for {longest:?}"
        );
    }
}

/// Holds the attack in the short form until everything is open, and in the full one until the server
/// has closed it.
async fn attack<O, W>(name: &str, scene: &Scene, victims: &Victims, open: O)
where
    O: Fn(Instant) -> W,
    W: Future<Output = Option<Duration>> + Send + 'static,
{
    let held = hold(name, scene, victims, SLOWDOWN, hold_all(scene, open)).await;
    all_closed(scene, &held);
}

/// A connection over HTTP/2 that answers PING and sends nothing else.
async fn idle_http2(client: Client, end: Instant) -> Option<Duration> {
    let mut frames = Frames::open(&client, &[]).await.ok()?;
    let opened = Instant::now();
    frames.held(end.saturating_duration_since(opened)).await;
    Some(opened.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_answer_ping() {
    let (scene, victims) = scene().await;
    let client = scene.attacker_http2("pst_nobody");
    let open = |end| idle_http2(client.clone(), end);
    attack("idle HTTP/2 connections", &scene, &victims, open).await;
}

/// A connection over TLS on which the first request never comes.
async fn slow_head(client: Client, end: Instant) -> Option<Duration> {
    let mut wire = tokio::time::timeout_at(end.into(), Wire::open(&client)).await.ok()?.ok()?;
    let opened = Instant::now();
    let sending = async {
        wire.send(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ").await?;
        loop {
            pass(Duration::from_secs(1)).await;
            wire.send(b"x").await?;
        }
    };
    let ended: Result<Result<(), String>, _> = tokio::time::timeout_at(end.into(), sending).await;
    drop(ended);
    Some(opened.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_come_byte_by_byte() {
    let (scene, victims) = scene().await;
    let client = scene.attacker("pst_nobody");
    let open = |end| slow_head(client.clone(), end);
    attack("slow heads over HTTP/1.1", &scene, &victims, open).await;
}

/// The beginning of a handshake that never ends.
async fn slow_handshake(client: Client, end: Instant) -> Option<Duration> {
    let mut stream = tokio::time::timeout_at(end.into(), client.tcp()).await.ok()?.ok()?;
    let opened = Instant::now();
    stream.write_all(&[0x16, 3, 1, 2, 0]).await.ok()?;
    let mut nothing = [0; 1];
    let ended = tokio::time::timeout_at(end.into(), stream.read(&mut nothing)).await;
    drop(ended);
    Some(opened.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_do_not_go_on() {
    let (scene, victims) = scene().await;
    let client = scene.attacker("pst_nobody");
    let open = |end| slow_handshake(client.clone(), end);
    attack("handshakes that do not go on", &scene, &victims, open).await;
}

/// Makes the bytes of a turn, from its number.
type Piece = fn(&Client, u32) -> Vec<u8>;

/// Sends pieces on connections and reads the responses. Opens another connection when the server
/// has closed one.
async fn flood(scene: &Scene, client: &Client, piece: Piece) {
    let client = client.clone();
    repeat(4, scene.lasting(), move |worker| {
        let client = client.clone();
        async move {
            let Ok(mut frames) = Frames::open(&client, &[]).await else {
                return pass(Duration::from_millis(50)).await;
            };
            for turn in 0.. {
                if frames.send(&piece(&client, turn)).await.is_err() {
                    return;
                }
                // Two of the four never read the responses.
                if worker % 2 == 0 {
                    let mut streams = Streams::default();
                    let read = frames.until_closed(&mut streams);
                    if tokio::time::timeout(Duration::from_millis(1), read).await.is_ok() {
                        return;
                    }
                }
            }
        }
    })
    .await;
}

/// Frames in one write.
const FRAMES: u32 = 64;

fn pings(_: &Client, _: u32) -> Vec<u8> {
    frame(frames::PING, 0, 0, b"postern!").repeat(FRAMES as usize)
}

fn settings(_: &Client, _: u32) -> Vec<u8> {
    frame(frames::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]).repeat(FRAMES as usize)
}

/// Requests that are cancelled in the next frame.
fn rapid_resets(client: &Client, turn: u32) -> Vec<u8> {
    let one = |number: u32| {
        let stream = 2 * (turn * FRAMES + number) + 1;
        let mut bytes = frames::request(client, stream, "/livez", "*/*");
        bytes.extend(frame(frames::RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        bytes
    };
    (0..FRAMES).flat_map(one).collect()
}

/// The head of one request that never ends.
fn continuations(client: &Client, turn: u32) -> Vec<u8> {
    let block = fields(&[("x-more", &"x".repeat(8_000))]);
    if turn > 0 {
        return frame(frames::CONTINUATION, 0, 1, &block);
    }
    let first = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", client.address()),
        (":path", "/livez"),
    ];
    frame(frames::HEADERS, frames::END_STREAM, 1, &fields(&first))
}

async fn attack_with(name: &str, pieces: Piece) {
    let scene = Scene::start(&[]).await;
    let victims = Victims::new(&scene).await;
    let client = scene.attacker_http2("pst_nobody");
    hold(name, &scene, &victims, SLOWDOWN, flood(&scene, &client, pieces)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_pings() {
    attack_with("PING flood", pings).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_settings() {
    attack_with("SETTINGS flood", settings).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_requests_that_are_reset() {
    attack_with("rapid reset", rapid_resets).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_continuations() {
    attack_with("CONTINUATION flood", continuations).await;
}
