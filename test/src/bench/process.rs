//! Facts of the kernel about a process and the machine.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// The most memory that a process has held at once since it was started or [`forget_peak`] was called, in bytes.
pub(super) fn peak(pid: u32) -> Result<u64> {
    status(pid, "VmHWM")
}

/// The memory that a process holds now, in bytes.
pub(super) fn resident(pid: u32) -> Result<u64> {
    status(pid, "VmRSS")
}

/// The memory that a process holds now, in bytes. Pages that several processes share count in parts.
pub(super) fn proportional(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the process is gone")?;
    kibibytes(&text, "Pss").context("the kernel does not say Pss")
}

/// The present anonymous memory of a process, in bytes.
///
/// # Errors
/// When the process is gone.
pub fn anonymous(pid: u32) -> Result<u64> {
    status(pid, "RssAnon")
}

/// Resets the peak to the present memory.
pub(super) fn forget_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("cannot reset the peak of a process")
}

/// The processor time that a process has used so far, of all its threads.
pub(super) fn used(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    let ticks = ticks(&stat).context("the kernel does not say how much processor time was used")?;
    Ok(Duration::from_millis(ticks * MILLISECONDS_PER_TICK))
}

/// The unit of processor time in `/proc`, on every architecture of our builds.
const MILLISECONDS_PER_TICK: u64 = 10;

/// `utime` and `stime`; the name before them may hold spaces and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Lets all threads of a process run on the first so many cores only.
pub(super) fn confine(pid: u32, cores: usize) -> Result<()> {
    let mut set = CpuSet::new();
    (0..cores).for_each(|core| set.set(core));
    for thread in fs::read_dir(format!("/proc/{pid}/task")).context("the process is gone")? {
        let thread: i32 = thread?.file_name().to_string_lossy().parse()?;
        // A thread may have ended meanwhile.
        match sched_setaffinity(Pid::from_raw(thread), &set) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(e) => return Err(e).context("cannot confine a process to some cores"),
        }
    }
    Ok(())
}

fn status(pid: u32, field: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    kibibytes(&text, field).with_context(|| format!("the kernel does not say {field}"))
}

/// The value of a line `FIELD:  N kB`, in bytes.
fn kibibytes(text: &str, field: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

/// Cores, memory and processor of this machine.
pub(super) fn machine() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let memory = kibibytes(&fs::read_to_string("/proc/meminfo")?, "MemTotal").unwrap_or_default();
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("an unnamed processor", |(_, name)| name);
    Ok(format!("{cores} cores ({model}), {} GiB of memory", memory >> 30))
}

/// Bytes for people.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_the_kernels_lines() {
        assert_eq!(
            kibibytes("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t1 kB\n", "VmHWM"),
            Some(2 << 20)
        );
        assert_eq!(kibibytes("VmHWM:\t none\n", "VmHWM"), None);
        assert_eq!(mebibytes((3 << 20) + (1 << 19)), "3.5 MiB");
    }

    #[test]
    fn processor_time_is_read_after_a_name_that_looks_like_fields() {
        let stat = "7 (a) b (c 1) S 1 2 3 4 5 6 7 8 9 10 25 17 0 0 20 0 1 0 100";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn a_process_knows_its_own_peak() {
        let own = std::process::id();
        // In this order: other tests of the process take memory meanwhile.
        let resident = resident(own).unwrap();
        assert!(peak(own).unwrap() >= resident / 2);
    }
}
