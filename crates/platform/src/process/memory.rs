//! Returns freed memory to the kernel.
//!
//! The C library keeps all free memory below any allocation in use: a single kept answer can hold the hundred megabytes
//! that were needed to read it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The interval in which memory is returned.
const INTERVAL: Duration = Duration::from_secs(10);
/// Anonymous memory in bytes up to which nothing is done. An idle manager needs less.
const SMALL: u64 = 16 << 20;

/// Returns memory every ten seconds while the process has more than a small amount, until `stop` is cancelled.
pub async fn give_back(stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let before = anonymous();
        if before.is_none_or(|bytes| bytes < SMALL) {
            continue;
        }
        // The trim walks through all free memory, and blocks allocations meanwhile.
        if tokio::task::spawn_blocking(trim).await.is_ok() {
            tracing::trace!(before, after = anonymous(), "gave memory back");
        }
    }
}

/// The anonymous memory of the process, in bytes.
fn anonymous() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&status, "RssAnon:").map(|kibibytes| kibibytes << 10)
}

/// The number of a line `FIELD N kB`.
fn kibibytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "no crate offers this function, which takes and leaves nothing"
)]
fn trim() {
    unsafe extern "C" {
        /// Returns all free whole pages to the kernel, except `keep` bytes.
        safe fn malloc_trim(keep: usize) -> std::ffi::c_int;
    }
    malloc_trim(0);
}

/// Other C libraries return memory by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_lines() {
        let status = "Name:\tx\nRssAnon:\t    2048 kB\nRssFile:\t 1 kB\n";
        assert_eq!(kibibytes(status, "RssAnon:"), Some(2048));
        assert_eq!(kibibytes(status, "RssShmem:"), None);
    }

    /// Small allocations below one that stays: the C library returns none of them automatically.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn free_memory_below_an_allocation_is_returned() {
        let pieces: Vec<Box<[u8; 1000]>> = (0..100_000).map(|_| Box::new([1; 1000])).collect();
        let last = Box::new([1_u8; 1000]);
        let held = anonymous().unwrap();
        drop(pieces);
        trim();
        let left = anonymous().unwrap();
        assert!(held - left > 60 << 20, "{held} before, {left} after");
        assert_eq!(last[0], 1);
    }
}
