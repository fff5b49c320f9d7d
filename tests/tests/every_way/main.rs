//! Every way to a cluster, with programs that only `cargo xtask test --all` fetches: through nginx in front of the
//! gateway and the agent, with kubectls of other ages, to a real kube-apiserver, and from the image. And at-rest keys that a real `OpenBao` has wrapped.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a panic is how it fails")]

mod image;
mod judged;
#[path = "../keyring/scenario.rs"]
mod keyring_scenario;
#[path = "../streams/kubectl.rs"]
mod kubectl;
mod openbao;
mod playground;
#[path = "../streams/scene.rs"]
mod scene;
mod streams;
mod tunnels;
mod upgrade;
