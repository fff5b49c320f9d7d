//! The priority of threads that must not slow down others.

/// Lowers the priority of the current thread, as `nice(2)` does.
pub(crate) fn lower_thread_priority(nice: i32) {
    // On other systems, this would change the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(nice) {
        tracing::debug!("cannot lower the priority of a thread: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
}
