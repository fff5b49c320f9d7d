//! The priority of threads that must not slow down the others.

/// Lowers the priority of the current thread, as `nice(2)` does.
pub(crate) fn lower_thread_priority(nice: i32) {
    // Elsewhere that would be the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(nice) {
        tracing::debug!("a thread has the priority of all others: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
}
